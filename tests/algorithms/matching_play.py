"""Play rounds of matched averaging on networks of any kind, device by device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import Algorithm, State
from edgefed.algorithms.interface.device_side import DeviceView, Result, Work
from edgefed.algorithms.interface.exchange import Exchange, Finished, Question
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Job, Tensors, Trained
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.seeds import derive
from tests.algorithms.play import Players, asked


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
class Fleet(Players):
    """Devices that train one network, and what they did.

    Attributes:
        given: weights that a device has in place of those it would train, by device.
        present: whether a device answers an exchange: by exchange and device.
        jobs: the jobs that devices did, in their order.
    """

    given: Mapping[str, Tensors] = field(default_factory=dict)
    present: Callable[[int, str], bool] = lambda _number, _device: True
    jobs: list[tuple[str, Job]] = field(default_factory=list)
    _device: str = ""

    @classmethod
    def of(cls, section: ModelSection, parts: Sequence[Samples], **more: Any) -> Fleet:
        """Return devices with these samples of three labels, ``device-00`` first."""
        model = build(section, parts[0].inputs.shape[1:], 3, 1)
        return cls(parts, Trainer(model, "cpu"), **more)

    def model(self, section: ModelSection | None = None) -> Model:
        return self.trainer_for(section).model

    def exchanges(
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
                if self.present(number, each.device)
            ]
            now = algorithm.merge(now, asked(planned), given)
            history.append((now, planned, given))
        return history

    def answer(self, half: Algorithm[Any], exchange: Exchange, question: Question) -> Answer:
        self._device = question.device
        return super().answer(half, exchange, question)

    def do(self, work: Work, view: DeviceView, model: ModelSection | None = None) -> Result:
        if isinstance(work, Job):
            self.jobs.append((self._device, work))
            if self._device in self.given:
                return Trained(self.given[self._device], len(view.train), 1, 0.5)
        return super().do(work, view, model)


def images(count: int, seed: int, classes: int = 3, size: int = 8) -> Samples:
    """Return noise with a bright patch at a place that depends on the label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    pixels = rng.normal(0, 0.3, (count, 1, size, size)).astype(np.float32)
    for number, label in enumerate(labels):
        pixels[number, 0, 2 * label : 2 * label + 2] += 1.0
    return Samples(pixels, labels)
