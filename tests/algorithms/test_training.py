"""A job has the schedule, the augmentation and the loss that the recipe says."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from edgefed.algorithms.base import Exchange
from edgefed.algorithms.registry import make
from edgefed.algorithms.training import schedule_of
from edgefed.config.recipe import Recipe, TrainingSection
from edgefed.learn.augment import Augment
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.squared_error import SquaredError
from edgefed.learn.types import Job, Objective, Schedule
from tests.algorithms.play import Players


def test_a_schedule_has_every_training_key_that_it_knows() -> None:
    training = TrainingSection(
        epochs=3,
        batch_size=7,
        learning_rate=0.3,
        momentum=0.5,
        weight_decay=0.1,
        max_steps=9,
        precision="bf16",
        optimizer="adam",
        beta1=0.8,
        beta2=0.95,
        epsilon=1e-6,
    )
    values = (3, 7, 0.3, 0.5, 0.1, 9, "bf16", "adam", 0.8, 0.95, 1e-6)
    assert asdict(schedule_of(training, 5)) == asdict(Schedule(*values))


@pytest.mark.parametrize(("number", "rate"), [(1, 0.4), (2, 0.2), (4, 0.05)])
def test_the_first_round_has_the_full_rate(number: int, rate: float) -> None:
    training = TrainingSection(learning_rate=0.4, learning_rate_decay=0.5)
    assert schedule_of(training, number).learning_rate == rate


def test_fifty_rounds_of_the_papers_decay() -> None:
    training = TrainingSection(learning_rate=0.01, learning_rate_decay=0.999)
    assert schedule_of(training, 51).learning_rate == pytest.approx(0.00951206, rel=1e-6)


def first_job(values: dict[str, Any], number: int = 1) -> Job:
    """Return what a recipe's first device does when it is asked in a round."""
    half, players = make(Recipe.model_validate(values)), Players()
    exchange = half.plan(players.start(half), players.roster, 1)
    assert isinstance(exchange, Exchange)
    question = exchange.questions[0]
    task = replace(players.task(exchange, question), round=number)
    job = half.prepare(task, players.view(question.device))
    assert isinstance(job, Job)
    return job


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedopt"])
def test_a_device_trains_with_the_rate_of_its_round(name: str) -> None:
    training = {"learning_rate": 0.1, "learning_rate_decay": 0.5}
    job = first_job({"algorithm": {"name": name}, "training": training}, number=3)
    assert job.schedule.learning_rate == 0.025


@pytest.mark.parametrize(
    ("section", "augment"),
    [
        ({}, None),
        ({"crop": 0, "crop_fill": "zeros", "flip": False}, None),
        ({"crop": 4}, Augment(4, "reflect", flip=False)),
        ({"crop": 4, "crop_fill": "zeros"}, Augment(4, "zeros", flip=False)),
        ({"flip": True}, Augment(0, "reflect", flip=True)),
        ({"crop": 2, "crop_fill": "zeros", "flip": True}, Augment(2, "zeros", flip=True)),
    ],
)
def test_images_are_augmented_as_the_recipe_says(
    section: dict[str, object], augment: Augment | None
) -> None:
    job = first_job({"training": section})
    assert job.augment == augment
    # ``==`` takes a missing word for False, and a device would not.
    assert augment is None or isinstance(job.augment and job.augment.flip, bool)


@pytest.mark.parametrize(
    ("name", "loss"), [("cross_entropy", CrossEntropy()), ("squared_error", SquaredError())]
)
def test_a_device_minimises_the_loss_of_the_recipe(name: str, loss: Objective) -> None:
    assert first_job({"training": {"loss": name}}).objective == loss
