"""Play runs of secure aggregation: devices with fixed randomness, a coordinator that may lie."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceTrust, DeviceView
from edgefed.algorithms.interface.exchange import Exchange, Question
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.seeds import derive
from edgefed.sharing.policy import Withheld
from edgefed.testing import play
from edgefed.wire.messages import BlobRef, Task
from edgefed.wire.task_digest import task_digest
from edgefed.wire.tensors import digest, pack
from tests.algorithms.play import Players

RUN = "r-0001-test"

KEYS, SHARES, FIT, LISTS, UNMASK = (
    "secure_keys",
    "secure_shares",
    "fit",
    "secure_lists",
    "secure_unmask",
)


def algorithm(secure: bool = True, name: str = "fedavg", **tables: Any) -> CompleteAlgorithm[Any]:
    """Return an algorithm with short training, masked or not."""
    return make(
        Recipe.model_validate(
            {
                "algorithm": {"name": name, **tables.pop("algorithm", {})},
                "training": {"batch_size": 4, "learning_rate": 0.1},
                "rounds": {"count": 1, **tables.pop("rounds", {})},
                "wire": {"uplink": "fp32"},
                "secure_aggregation": {"enabled": secure, **tables.pop("secure_aggregation", {})},
                **tables,
            }
        )
    )


@dataclass
class SecureDevices(Players):
    """Devices that send each other relays, and draw keys from a seed of the test.

    Attributes:
        seed: of all randomness of keys.
        trust: of each device, where there are certificates.
        answered: every answer, by the exchange's name.
    """

    seed: int = 0
    trust: dict[str, DeviceTrust] = field(default_factory=dict)
    answered: dict[str, list[Answer]] = field(default_factory=dict)
    _draws: int = 0

    def task(self, exchange: Exchange, question: Question) -> DeviceTask:
        """Return what a device is asked, with the digest of the message."""
        digest = task_digest(wire_task(exchange, question))
        return replace(super().task(exchange, question), run=RUN, task_digest=digest)

    def view(self, device: str, model: Any = None) -> DeviceView:
        """Return what a device's half may use."""
        trust = self.trust.get(device)
        return replace(super().view(device, model), trust=trust, private_bytes=self.draw)

    def draw(self, count: int) -> bytes:
        """Return bytes that nobody guesses, and that are the same in every test run."""
        self._draws += 1
        return np.random.default_rng(derive(self.seed, "secret", self._draws)).bytes(count)

    def rejected(self, half: CompleteAlgorithm[Any], exchange: Exchange, answer: Answer) -> str:
        """Return why the coordinator does not merge an answer."""
        return half.reject_reason(asked(exchange), answer, self.trainer.model)


Change = Callable[[Answer], Answer]


def wire_task(exchange: Exchange, question: Question) -> Task:
    """Return the message that asks a device, as far as devices can be asked different things."""
    packed = {role: pack(exchange.payloads[name].arrays) for role, name in question.blobs.items()}
    return Task(
        run=RUN,
        exchange=f"{RUN}-{exchange.round}-{exchange.name}",
        index=exchange.index,
        round=exchange.round,
        question=exchange.name,
        device=question.device,
        deadline=exchange.deadline,
        seed=derive(3, exchange.round, exchange.name, question.device),
        algorithm="fedavg",
        settings={},
        model={},
        training={},
        codec="fp32",
        samples=question.samples,
        blobs={role: BlobRef(digest=digest(each), size=len(each)) for role, each in packed.items()},
        params=dict(question.params),
        receivers=question.receivers,
        max_relay_bytes=exchange.max_relay_bytes,
    )


def asked(exchange: Exchange) -> Exchange:
    """Return an exchange as the engine hands it to ``merge``."""
    digests = [task_digest(wire_task(exchange, each)) for each in exchange.questions[:1]]
    return replace(play.asked(exchange), task_digest=b"".join(digests))


ALL = [f"device-{number:02d}" for number in range(10)]


def question_of(planned: Exchange, device: str) -> Question:
    return next(each for each in planned.questions if each.device == device)


def refusal(secure: Round, planned: Exchange, question: Question) -> str:
    """Return why a device refuses; what it keeps is as it was."""
    before = secure.devices.private.get(question.device)
    with pytest.raises(Withheld) as raised:
        secure.devices.answer(secure.half, planned, question)
    assert secure.devices.private.get(question.device) == before
    return raised.value.message


@dataclass
class Round:
    """One round, step by step.

    Attributes:
        half: the algorithm.
        devices: who answers.
        state: before the next exchange.
    """

    half: CompleteAlgorithm[Any]
    devices: SecureDevices
    state: State

    @classmethod
    def of(cls, half: CompleteAlgorithm[Any], devices: SecureDevices) -> Round:
        """Return a run's first round."""
        return cls(half, devices, devices.start(half))

    def plan(self) -> Exchange:
        """Return the next exchange."""
        planned = self.half.plan(self.state, self.devices.roster, 5)
        assert isinstance(planned, Exchange)
        return planned

    def answers(self, planned: Exchange, lost: Collection[str] = ()) -> list[Answer]:
        """Return the answers of the devices that are not lost."""
        found = [
            self.devices.answer(self.half, planned, question)
            for question in planned.questions
            if question.device not in lost
        ]
        self.devices.answered[planned.name] = found
        return found

    def merge(self, planned: Exchange, answers: Sequence[Answer]) -> None:
        """Merge the answers that are not rejected."""
        valid = [each for each in answers if not self.devices.rejected(self.half, planned, each)]
        assert len(valid) >= planned.quorum, "the quorum is missed"
        self.state = self.half.merge(self.state, asked(planned), valid)

    def step(self, name: str, lost: Collection[str] = (), change: Change | None = None) -> Exchange:
        """Play one exchange, which has this name."""
        planned = self.plan()
        assert planned.name == name
        answers = self.answers(planned, lost)
        self.merge(planned, [change(each) for each in answers] if change else answers)
        return planned

    def until(self, name: str) -> Exchange:
        """Play all exchanges before one, and return it."""
        while (planned := self.plan()).name != name:
            self.merge(planned, self.answers(planned))
        return planned

    def finish(self) -> None:
        """Play all exchanges that are left."""
        planned = self.half.plan(self.state, self.devices.roster, 5)
        while isinstance(planned, Exchange):
            self.merge(planned, self.answers(planned))
            planned = self.half.plan(self.state, self.devices.roster, 5)
