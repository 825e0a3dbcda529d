"""The learning rate decays from round to round, in every algorithm."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from edgefed.algorithms.registry import make
from edgefed.algorithms.training import schedule_of
from edgefed.config.recipe import Recipe, TrainingSection
from edgefed.learn.types import Job, Schedule
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


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedopt"])
def test_a_device_trains_with_the_rate_of_its_round(name: str) -> None:
    training = {"learning_rate": 0.1, "learning_rate_decay": 0.5}
    recipe = Recipe.model_validate({"algorithm": {"name": name}, "training": training})
    half, players = make(recipe), Players()
    _, exchange = players.play(half)[0]
    question = exchange.questions[0]
    task = replace(players.task(exchange, question), round=3)
    job = half.prepare(task, players.view(question.device))
    assert isinstance(job, Job)
    assert job.schedule.learning_rate == 0.025
