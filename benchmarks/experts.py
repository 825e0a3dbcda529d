"""A mixture of experts against FedAvg: the time of a training step, and bytes on the network.

``lenet5-wide`` on noise of CIFAR-10's shape in batches of 64, and the demo's ``cnn`` on noise of
the shape of digits in batches of 16. Each variant is a device's task of ``fedmoe`` as the algorithm
plans it: ``K experts`` at the start, where all shares are equal; ``specialised``, where each label
has 0.97 of its share in one of 4 experts; ``skipping``, the same with ``skip_below = 0.02`` and
``detach_gate_features``; ``pruned``, where a device has labels of two of the 4 experts and
``prune = 0.5``.

One thread, CPU time of ``Trainer``'s steps, from one call of its ``progress`` to the next. Each
measurement of a variant lies between two of FedAvg; a ratio is the median over repeats. Bytes are
those of the encoded blobs (fp32) of a client-round in both directions.

    python -m benchmarks.experts [--repeats 9] [--models lenet5-wide cnn] [--json]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.shared.harness import parser, show
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.experts.expert_records import MIXTURES, PHI, TABLE, KnownMixture
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView
from edgefed.algorithms.interface.exchange import Finished
from edgefed.algorithms.interface.member import Member
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.files.samples import Samples
from edgefed.learn.base.mixture_table import device_shares, kept_experts
from edgefed.learn.base.processors import set_threads
from edgefed.learn.base.types import Array, Job, Trained
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.seeds import generator
from edgefed.sharing.policy import ANYTHING
from edgefed.wire.codecs import CODECS

CLASSES = 10
DEVICE = "device-00"
SHARE = 0.97
"""Of a label in its own expert, where experts are specialised."""


@dataclass(frozen=True)
class Anchor:
    """What is trained: a model, its inputs' shape, the batch size, steps of a job."""

    model: str
    shape: tuple[int, ...]
    batch: int
    steps: int


ANCHORS = {
    "lenet5-wide": Anchor("lenet5-wide", (3, 32, 32), 64, 4),
    "cnn": Anchor("cnn", (1, 8, 8), 16, 40),
}


@dataclass(frozen=True)
class Variant:
    """An algorithm with its settings, and the state of its table.

    Attributes:
        experts: 0 for FedAvg.
        settings: of the algorithm.
        sharp: whether experts are specialised.
        labels: that the device has.
    """

    experts: int
    settings: dict[str, Any] = field(default_factory=dict)
    sharp: bool = False
    labels: tuple[int, ...] = tuple(range(CLASSES))

    def algorithm(self, anchor: Anchor) -> CompleteAlgorithm[Any]:
        """Return the algorithm, whose training is one epoch."""
        settings = {"name": "fedmoe", "experts": self.experts, **self.settings}
        training = {"batch_size": anchor.batch, "learning_rate": 0.02, "epochs": 1}
        section = settings if self.experts else {"name": "fedavg"}
        return make(Recipe.model_validate({"algorithm": section, "training": training}))

    def table(self) -> Array:
        """Return the table of specialised experts: each label has its share in one of them."""
        rest = (1 - SHARE) / (self.experts - 1)
        logits = np.full((CLASSES, self.experts), np.log(rest), np.float32)
        logits[np.arange(CLASSES), np.arange(CLASSES) % self.experts] = np.log(SHARE)
        return logits


SKIPPING = {"skip_below": 0.02, "detach_gate_features": True}
OF_TWO = tuple(label for label in range(CLASSES) if label % 4 < 2)

VARIANTS = {
    **{f"{count} expert{'s' * (count > 1)}": Variant(count) for count in (1, 2, 4, 10)},
    "4 specialised": Variant(4, sharp=True),
    "4 specialised, skipping": Variant(4, SKIPPING, sharp=True),
    "4 pruned to 2": Variant(4, {"prune": 0.5}, sharp=True, labels=OF_TWO),
}


class Device:
    """A device with samples of some labels, in a round of an algorithm."""

    def __init__(self, anchor: Anchor, variant: Variant, model: Model) -> None:
        rng = generator(1, "experts", anchor.model)
        count = anchor.batch * (anchor.steps + 1)
        inputs = rng.standard_normal((count, *anchor.shape), dtype=np.float32)
        self.samples = samples = Samples(inputs, rng.choice(variant.labels, count))
        nothing = Samples(inputs[:0], samples.targets[:0])
        self._algorithm = variant.algorithm(anchor)
        roster = (Member(DEVICE, count, anchor.shape, CLASSES),)
        state = self._algorithm.start(model.weights(), roster, 11)
        if variant.sharp:
            state = specialised(state, variant, samples)
        planned = self._algorithm.plan(state, roster, 5)
        assert not isinstance(planned, Finished)
        (question,) = planned.questions
        payloads = {role: planned.payloads[name] for role, name in question.blobs.items()}
        groups = {role: payload.arrays for role, payload in payloads.items()}
        self._task = DeviceTask("fit", 1, DEVICE, 3, groups, question.params)
        self._view = DeviceView(samples, nothing, {}, ANYTHING, model)

    def job(self) -> Job:
        """Return the training that the task asks for."""
        work = self._algorithm.prepare(self._task, self._view)
        assert isinstance(work, Job)
        return work

    def seconds(self, trainer: Trainer, job: Job) -> float:
        """Return the CPU seconds of a step, the mean of the job's but for the first one."""
        seen: list[float] = []
        trainer.train(job, self.samples, lambda _done: seen.append(time.process_time()))
        return (seen[-1] - seen[0]) / (len(seen) - 1)

    def transferred(self, trained: Trained) -> int:
        """Return the bytes of all blobs that the device gets and sends in a round."""
        answer: Answer = self._algorithm.answer(self._task, self._view, trained)
        sent = [group.arrays for group in answer.groups.values()]
        codec, rng = CODECS["fp32"], np.random.default_rng(0)
        return sum(len(codec.encode(each, rng)) for each in (*self._task.groups.values(), *sent))


def specialised(state: State, variant: Variant, samples: Samples) -> State:
    """Return the state of a fleet whose experts are specialised and which knows the device."""
    table = variant.table()
    frequencies = np.bincount(samples.targets, minlength=CLASSES) / len(samples)
    shares = device_shares(table, frequencies)
    kept = kept_experts(shares, variant.settings.get("prune", 0.0))
    known = KnownMixture(tuple(float(each) for each in shares), kept, len(samples), 1)
    return replace(
        state,
        groups={**state.groups, TABLE: {PHI: table}},
        params={**state.params, MIXTURES: {DEVICE: known.to_json()}},
    )


def measure(anchor: Anchor, repeats: int) -> list[dict[str, Any]]:
    """Return a row for FedAvg and for each variant."""
    model = build(ModelSection(name=anchor.model), anchor.shape, CLASSES, 1)
    trainer = Trainer(model, "cpu")
    plain = Device(anchor, Variant(0), model)
    base = plain.job()
    base_bytes = plain.transferred(trainer.train(base, plain.samples))
    rows = [row(anchor, "FedAvg", [plain.seconds(trainer, base)], [1.0], base_bytes, base_bytes)]
    for name, variant in VARIANTS.items():
        device = Device(anchor, variant, model)
        job, times, ratios = device.job(), list[float](), list[float]()
        transferred = device.transferred(trainer.train(job, device.samples))
        before = plain.seconds(trainer, base)
        for _ in range(repeats):
            own, after = device.seconds(trainer, job), plain.seconds(trainer, base)
            times.append(own)
            ratios.append(2 * own / (before + after))
            before = after
        rows.append(row(anchor, name, times, ratios, transferred, base_bytes))
    return rows


def row(
    anchor: Anchor,
    variant: str,
    seconds: Sequence[float],
    ratios: Sequence[float],
    transferred: int,
    base_bytes: int,
) -> dict[str, Any]:
    """Return a variant's figures."""
    return {
        "model": anchor.model,
        "variant": variant,
        "milliseconds": 1000 * statistics.median(seconds),
        "step_ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "bytes": transferred,
        "bytes_ratio": transferred / base_bytes,
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the figures by which the mixture is judged, of the models that were measured."""
    found = {(each["model"], each["variant"]): each for each in rows}
    wanted = {
        "step_ratio_k4": ("lenet5-wide", "4 experts", "step_ratio"),
        "step_ratio_k4_specialised": ("lenet5-wide", "4 specialised, skipping", "step_ratio"),
        "step_ratio_k4_demo": ("cnn", "4 experts", "step_ratio"),
        "bytes_ratio_k4_pruned": ("lenet5-wide", "4 pruned to 2", "bytes_ratio"),
    }
    return {
        name: found[model, variant][figure]
        for name, (model, variant, figure) in wanted.items()
        if (model, variant) in found
    }


def main() -> None:
    """Measure and print."""
    options = parser("experts", __doc__, repeats=9, models=ANCHORS).parse_args()
    set_threads(1)
    rows = [each for name in options.models for each in measure(ANCHORS[name], options.repeats)]
    show(options, {**summary(rows), "rows": rows})


if __name__ == "__main__":
    main()
