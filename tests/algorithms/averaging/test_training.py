"""A job has the schedule, the augmentation and the loss that the recipe says."""

from __future__ import annotations

from dataclasses import asdict, replace
from json import dumps
from typing import Any

import pytest
from pydantic import ValidationError

from edgefed.algorithms.averaging.training import schedule_of
from edgefed.algorithms.composed.registry import built_in, make
from edgefed.algorithms.interface.device_side import LowestLossJob, WorkSequence
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.errors import RecipeError, UsageError
from edgefed.learn.base.augment import Augment
from edgefed.learn.base.rate_schedule import RateSchedule
from edgefed.learn.base.types import Job, Objective, Schedule
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.local_mix import LocalMixObjective
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.objectives.squared_error import SquaredError
from tests.algorithms.play import Players, trainer

ASKING_FIRST = {"fedmix", "globalmix", "naivemix"}
"""Subclasses of FedAvg whose first exchange does not train."""


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
        carry_state=True,
        nesterov=True,
        max_gradient_norm=2.5,
    )
    values = (3, 7, 0.3, 0.5, 0.1, 9, "bf16", "adam", 0.8, 0.95, 1e-6, True, True, 2.5)
    assert asdict(schedule_of(training, 5)) == asdict(Schedule(*values))


@pytest.mark.parametrize(("number", "rate"), [(1, 0.4), (2, 0.2), (4, 0.05)])
def test_the_first_round_has_the_full_rate(number: int, rate: float) -> None:
    training = TrainingSection(learning_rate=0.4, learning_rate_decay=0.5)
    assert schedule_of(training, number).learning_rate == rate


def test_over_the_run_the_rate_follows_the_rounds_and_composes_with_the_decay() -> None:
    training = TrainingSection(
        learning_rate=0.4,
        learning_rate_decay=0.5,
        schedule="linear",
        schedule_over="run",
        warm_up=0.2,
        final_rate=0.5,
    )
    rounds = [schedule_of(training, number, 5) for number in range(1, 6)]
    factors = (1 / 2, 1, 1 - 0.5 / 4, 1 - 1 / 4, 1 - 1.5 / 4)
    wanted = [0.4 * 0.5**place * factor for place, factor in enumerate(factors)]
    assert [each.learning_rate for each in rounds] == pytest.approx(wanted, rel=1e-12)
    assert all(each.rates == RateSchedule() for each in rounds), "constant in a round"
    after = schedule_of(training, 6, 5)
    assert after.learning_rate == pytest.approx(wanted[-1] / 2), "what follows the last round"


def test_over_the_round_the_rate_follows_the_steps() -> None:
    training = TrainingSection(
        learning_rate=0.4,
        learning_rate_decay=0.5,
        schedule="step",
        warm_up=0.25,
        final_rate=0.3,
        step_every=4,
        step_factor=0.7,
    )
    schedule = schedule_of(training, 2, 5)
    assert schedule.learning_rate == 0.2
    assert schedule.rates == RateSchedule("step", 0.25, 0.3, 4, 0.7)


def test_a_schedule_over_an_unknown_number_of_rounds_is_an_error() -> None:
    training = TrainingSection(schedule="cosine", schedule_over="run")
    with pytest.raises(UsageError, match="number is unknown") as caught:
        schedule_of(training, 1)
    assert caught.value.code == "train.schedule"
    constant = TrainingSection(schedule_over="run")
    assert schedule_of(constant, 1) == Schedule()


def test_fifty_rounds_of_the_papers_decay() -> None:
    training = TrainingSection(learning_rate=0.01, learning_rate_decay=0.999)
    assert schedule_of(training, 51).learning_rate == pytest.approx(0.00951206, rel=1e-6)


def first_job(values: dict[str, Any], number: int = 1) -> Job:
    """Return what a recipe's first device does when it is asked in a round."""
    half, players = make(Recipe.model_validate(values)), Players()
    exchange = players.planned(half, players.start(half))
    question = exchange.questions[0]
    task = replace(players.task(exchange, question), round=number, rounds=half.rounds.count)
    work = half.prepare(task, players.view(question.device))
    if isinstance(work, WorkSequence):
        work = next(each for each in work.works if isinstance(each, Job))
    job = work.jobs[0] if isinstance(work, LowestLossJob) else work
    assert isinstance(job, Job)
    return job


@pytest.mark.parametrize("name", sorted(built_in().keys() - ASKING_FIRST))
def test_every_algorithm_follows_the_rounds_of_the_run(name: str) -> None:
    training = {"learning_rate": 0.1, "schedule": "linear", "schedule_over": "run"}
    values = {"algorithm": {"name": name}, "training": training, "rounds": {"count": 4}}
    assert first_job(values, number=3).schedule.learning_rate == pytest.approx(0.05)


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


def test_smoothing_and_weights_reach_the_loss_of_every_objective() -> None:
    training = {"label_smoothing": 0.1, "class_weights": "balanced"}
    loss = CrossEntropy(0.1, "balanced")
    assert first_job({"training": training}).objective == loss
    assert first_job({"training": {"class_weights": [1, 0, 2.5]}}).objective == CrossEntropy(
        0.0, (1.0, 0.0, 2.5)
    )
    proximal = {"algorithm": {"name": "fedprox", "mu": 0.5}, "training": training}
    assert first_job(proximal).objective == Proximal(loss, 0.5)
    local = first_job({"algorithm": {"name": "localmix"}, "training": training}).objective
    assert isinstance(local, LocalMixObjective)
    assert local.loss == loss


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"label_smoothing": 0.1, "loss": "squared_error"}, "label_smoothing belongs to"),
        ({"class_weights": "balanced", "loss": "squared_error"}, "class_weights belongs to"),
        ({"nesterov": True}, "needs a momentum"),
        ({"nesterov": True, "optimizer": "adamw"}, "AdamW has no Nesterov"),
    ],
)
def test_contradictory_settings_are_refused(training: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        make(Recipe.model_validate({"training": training}))
    assert caught.value.hint


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1], ["1"], "balance", [float("inf")]])
def test_class_weights_are_a_word_or_numbers_of_which_one_is_not_0(weights: object) -> None:
    with pytest.raises(ValidationError, match="class_weights"):
        TrainingSection.model_validate_json(dumps({"class_weights": weights}), strict=True)


@pytest.mark.parametrize(
    ("name", "settings"), [("fedlc", {}), ("fedrs", {}), ("fedmoe", {"experts": 2})]
)
@pytest.mark.parametrize("training", [{"label_smoothing": 0.1}, {"class_weights": "balanced"}])
def test_losses_of_their_own_refuse_smoothing_and_weights(
    name: str, settings: dict[str, Any], training: dict[str, Any]
) -> None:
    values = {"algorithm": {"name": name, **settings}, "training": training}
    chosen, model = Recipe.model_validate(values), trainer().model
    with pytest.raises(RecipeError, match="cannot be combined with label smoothing") as caught:
        make(chosen).check_model(model)
    assert caught.value.code == "algorithm.labels"
    plain = {"fedlc": {"calibration": 0}, "fedrs": {"alpha": 1}, "fedmoe": {"experts": 1}}[name]
    values = {"algorithm": {"name": name, **plain}, "training": training}
    chosen = Recipe.model_validate(values)
    make(chosen).check_model(model)
