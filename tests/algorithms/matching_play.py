"""Play rounds of matched averaging on networks of any kind, device by device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView
from edgefed.algorithms.interface.exchange import Exchange, Finished, Question
from edgefed.algorithms.interface.member import Member
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Job, Tensors, Trained
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.seeds import derive
from edgefed.sharing.policy import ANYTHING, Policy
from edgefed.worker.run_work import run_work
from tests.algorithms.play import asked, planned_for


def half(
    *, rounds: int = 1, training: Mapping[str, Any] | None = None, **settings: Any
) -> CompleteAlgorithm[Any]:
    """Return FedMA with these settings."""
    name = settings.pop("name", "fedma")
    return make(
        Recipe.model_validate(
            {
                "algorithm": {"name": name, **settings},
                "training": {"batch_size": 4, "learning_rate": 0.1, **(training or {})},
                "rounds": {"count": rounds},
            }
        )
    )


@dataclass
class Fleet:
    """Devices that train one network; what they keep is here.

    Attributes:
        section: the network.
        parts: the samples of each device, ``device-0`` first.
        policy: of every device.
        given: weights that a device has in place of those it would train, by device.
        answers: whether a device answers an exchange: by exchange and device.
        jobs: the jobs that devices did, in their order.
    """

    section: ModelSection
    parts: Sequence[Samples]
    classes: int
    policy: Policy = ANYTHING
    given: Mapping[str, Tensors] = field(default_factory=dict)
    answers: Callable[[int, str], bool] = lambda _number, _device: True
    private: dict[str, Mapping[str, Tensors]] = field(default_factory=dict)
    jobs: list[tuple[str, Job]] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.parts[0].inputs.shape[1:])

    def model(self, section: ModelSection | None = None) -> Model:
        return build(section or self.section, self.shape, self.classes, 1)

    @property
    def roster(self) -> tuple[Member, ...]:
        return tuple(
            Member(f"device-{number}", len(part), self.shape, self.classes)
            for number, part in enumerate(self.parts)
        )

    def planned(self, algorithm: CompleteAlgorithm[Any], state: State) -> Exchange:
        return planned_for(algorithm, state, self.roster)

    def start(self, algorithm: CompleteAlgorithm[Any]) -> State:
        model = self.model()
        algorithm.check_model(model)
        return algorithm.start(model.weights(), self.roster, 11)

    def play(
        self, algorithm: CompleteAlgorithm[Any], state: State | None = None, most: int = 100
    ) -> list[tuple[State, Exchange, list[Answer]]]:
        """Return each exchange of a run, its answers, and the state after it."""
        now, history = state or self.start(algorithm), []
        for number in range(most):
            planned = algorithm.plan(now, self.roster, derive(5, now.round))
            if isinstance(planned, Finished):
                break
            given = [
                self.answer(algorithm, planned, each)
                for each in planned.questions
                if self.answers(number, each.device)
            ]
            now = algorithm.merge(now, asked(planned), given)
            history.append((now, planned, given))
        return history

    def view(self, device: str, section: ModelSection | None) -> DeviceView:
        part = self.parts[int(device.removeprefix("device-"))]
        kept = self.private.get(device, {})
        return DeviceView(part, part, kept, self.policy, self.model(section))

    def task(self, exchange: Exchange, question: Question) -> DeviceTask:
        return DeviceTask(
            question=exchange.name,
            round=exchange.round,
            device=question.device,
            seed=derive(3, exchange.round, question.device),
            groups={role: exchange.payloads[name].arrays for role, name in question.blobs.items()},
            params=question.params,
        )

    def answer(
        self, algorithm: CompleteAlgorithm[Any], exchange: Exchange, question: Question
    ) -> Answer:
        """Return a device's answer and keep its private state."""
        task, view = self.task(exchange, question), self.view(question.device, exchange.model)
        work = algorithm.prepare(task, view)
        if isinstance(work, Answer):
            made = work
        elif isinstance(work, Job) and question.device in self.given:
            self.jobs.append((question.device, work))
            done = Trained(self.given[question.device], len(view.train), 1, 0.5)
            made = algorithm.answer(task, view, done)
        else:
            if isinstance(work, Job):
                self.jobs.append((question.device, work))
            trainer = Trainer(view.model, "cpu")
            made = algorithm.answer(task, view, run_work(trainer, work, view.train))
        self.private[question.device] = {**view.private, **made.private}
        return replace(made, device=question.device, private={})


def images(count: int, seed: int, classes: int = 3, size: int = 8) -> Samples:
    """Return noise with a bright patch at a place that depends on the label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    pixels = rng.normal(0, 0.3, (count, 1, size, size)).astype(np.float32)
    for number, label in enumerate(labels):
        pixels[number, 0, 2 * label : 2 * label + 2] += 1.0
    return Samples(pixels, labels)
