"""A cohort whose devices are at sites: its tasks, their replies, and the merge of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.algorithms.averaging.fedavg import AveragingSettings, FedAvg, delta_role
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.exchanges.reply_checks import check
from edgefed.coordinator.exchanges.site_sums import check_sum
from edgefed.coordinator.exchanges.tasks import asked_exchange
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.gateway.site_sums import SiteSums
from edgefed.learn.base.types import Tensors
from edgefed.wire.blobs import BlobCache
from edgefed.wire.codecs import CODECS
from edgefed.wire.messages import BlobRef, Reply
from edgefed.wire.site_messages import SumReply, SumRequest
from edgefed.wire.tensors import digest, pack
from tests.worker.tasks import task

WEIGHTS: Tensors = {
    "layer.weight": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    "norm.running_mean": np.zeros(3, np.float32),
    "norm.num_batches_tracked": np.array([7], np.int64),
}
PACKED = pack(WEIGHTS)
DEADLINE = 100.0


def drawn_delta(seed: int, scale: float = 0.5) -> Tensors:
    """Return the changes of every weight, counts among them."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, 40, value.shape)
        if value.dtype.kind == "i"
        else (scale * rng.standard_normal(value.shape)).astype(np.float32)
        for name, value in WEIGHTS.items()
    }


@dataclass
class Cohort:
    """Tasks of devices, and what each of them answers.

    Attributes:
        announced: the samples of each device, by name.
        weighting: of the mean.
    """

    folder: Path
    announced: Mapping[str, int]
    weighting: str = "examples"

    def __post_init__(self) -> None:
        self.cache = BlobCache(self.folder, 2**30)
        self.cache.put(PACKED)
        ref = BlobRef(digest=digest(PACKED), size=len(PACKED))
        settings = {"weighting": self.weighting}
        self.tasks = {
            device: task(
                device=device,
                samples=samples,
                settings=settings,
                blobs={"weights": ref},
                deadline=DEADLINE,
                nonce=digest(device.encode())[:16],
            )
            for device, samples in self.announced.items()
        }
        first = next(iter(self.tasks.values()))
        self.opened = OpenExchange(
            exchange=first.exchange,
            index=first.index,
            name="fit",
            round=first.round,
            tasks=tuple(self.tasks.values()),
            wanted=len(self.tasks),
            quorum=1,
            deadline=DEADLINE,
            reply_roles={"delta": delta_role(WEIGHTS)},
            site_sums="always",
        )

    def request(self, devices: Sequence[str], **changes: Any) -> SumRequest:
        """Return the request for the sum of some devices."""
        return SumRequest.model_validate(
            {
                "run": self.opened.tasks[0].run,
                "exchange": self.opened.exchange,
                "index": self.opened.index,
                "total": sum(self.announced.values()),
                "always": True,
                "lost_grace": None,
                "seconds": DEADLINE,
                "devices": tuple(devices),
                **changes,
            }
        )

    def reply(self, device: str, delta: Tensors, samples: int = 0, codec: str = "int8") -> Reply:
        """Return a device's reply, whose blob is in the cache."""
        blob = CODECS[codec].encode(delta, np.random.default_rng(len(device)))
        self.cache.put(blob)
        given = self.tasks[device]
        return Reply(
            run=given.run,
            exchange=given.exchange,
            index=given.index,
            device=device,
            session="0" * 16,
            bases={"weights": digest(PACKED)},
            status="ok",
            samples=samples or given.samples,
            metrics={"loss": 0.5},
            blobs={"delta": BlobRef(digest=digest(blob), size=len(blob))},
            nonce=given.nonce,
        )

    def read(self, name: str) -> bytes:
        data = self.cache.get(name)
        assert data is not None
        return data

    def delivered(self, reply: Reply) -> Delivered:
        one = Delivered(reply, self.read, 1.0, 9)
        if isinstance(reply, SumReply):
            return replace(one, parts=tuple(replace(one, reply=part) for part in reply.replies))
        return one

    def answers(self, reply: Reply) -> list[Answer]:
        """Return the answers of a reply or a sum that the coordinator has checked."""
        delivered = self.delivered(reply)
        if delivered.parts:
            return check_sum(delivered, self.opened, lambda answer: "")
        return [check(delivered, self.opened, lambda answer: "")]

    def merged(self, replies: Sequence[Reply]) -> State:
        """Return the state after the merge of replies and sums."""
        settings = AveragingSettings.model_validate({"weighting": self.weighting})
        algorithm = FedAvg(settings, TrainingSection())
        state = algorithm.start(WEIGHTS, (), 0)
        answers = (answer for reply in replies for answer in self.answers(reply))
        return algorithm.merge(state, asked_exchange(self.opened), answers)


class Site:
    """The sums of one site, of which a test moves the clock."""

    def __init__(self, cohort: Cohort, devices: Sequence[str], **changes: Any) -> None:
        self.cohort, self.devices = cohort, devices
        self.lost: dict[str, float] = {}
        self.sums = SiteSums(
            cohort.cache,
            lambda out, since: {
                device: max(since, self.lost[device]) for device in out if device in self.lost
            },
        )
        self.sums.request(cohort.request(devices, **changes), 0.0)

    def take(self, reply: Reply, now: float = 0.0) -> list[Reply]:
        """Return what is passed on after a reply."""
        passed = self.sums.take(self.cohort.tasks[reply.device], reply)
        return [*([] if passed is None else [passed]), *self.sums.complete(now)]


def same_bits(one: State, other: State) -> bool:
    weights, others = one.groups["weights"], other.groups["weights"]
    return {n: a.tobytes() for n, a in weights.items()} == {
        n: a.tobytes() for n, a in others.items()
    }
