"""Play whole runs of an algorithm with the small samples of these tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edgefed.algorithms.composed.method import Method
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.base import Algorithm, State
from edgefed.algorithms.interface.exchange import Exchange, Question
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Job
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.testing import play
from edgefed.testing.play import asked as asked  # noqa: PLC0414 - of this module's words
from edgefed.testing.play import bits as bits  # noqa: PLC0414
from tests.run_fixture import CLASSES, SHAPE, samples

SIZES = (5, 9, 6, 4)


def algorithm(name: str, rounds: int = 2, **settings: Any) -> CompleteAlgorithm[Any]:
    """Return an algorithm whose run has so many rounds of short training."""
    return make(
        Recipe.model_validate(
            {
                "algorithm": {"name": name, **settings},
                "training": {"batch_size": 4, "learning_rate": 0.1},
                "rounds": {"count": rounds},
            }
        )
    )


def task_fields(plan: Recipe, **changed: Any) -> dict[str, Any]:
    """Return what a task says of a recipe's method, with some fields changed."""
    method = Method.of(plan, make(plan).settings).asked("fit", plan.rounds)
    return {**method.task_fields(), **changed}


def planned_for(half: Algorithm[Any], state: State, roster: Roster, seed: int = 1) -> Exchange:
    """Return the next exchange of a run that is not over, with these devices."""
    exchange = half.plan(state, roster, seed)
    assert isinstance(exchange, Exchange)
    return exchange


def trainer(hidden: Sequence[int] = (3,)) -> Trainer:
    return trainer_of(ModelSection.model_validate({"name": "mlp", "hidden": list(hidden)}))


def trainer_of(section: ModelSection) -> Trainer:
    return Trainer(build(section, SHAPE, CLASSES, 1), "cpu")


@dataclass
class Players(play.Players):
    """Devices with the sizes of these tests and a small perceptron."""

    parts: Sequence[Samples] = field(
        default_factory=lambda: [samples(size, 10 + n) for n, size in enumerate(SIZES)]
    )
    trainer: Trainer = field(default_factory=trainer)
    test: Samples = field(default_factory=lambda: samples(3, 77))

    def planned(self, half: Algorithm[Any], state: State, seed: int = 1) -> Exchange:
        """Return the next exchange of a run that is not over."""
        return planned_for(half, state, self.roster, seed)

    def job(self, half: Algorithm[Any], exchange: Exchange, question: Question) -> Job:
        """Return what a device trains."""
        work = half.prepare(self.task(exchange, question), self.view(question.device))
        assert isinstance(work, Job)
        return work
