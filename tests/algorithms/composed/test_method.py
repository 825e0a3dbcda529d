"""A method is the same value on the coordinator, in a task and on a device."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from edgefed.algorithms.averaging.training import schedule_of, shortened
from edgefed.algorithms.composed.method import OPTIONAL, Method, fields_of
from edgefed.algorithms.composed.registry import find, make, make_device_half
from edgefed.algorithms.interface.base import Algorithm
from edgefed.algorithms.interface.wrapped_algorithm import WrappedAlgorithm
from edgefed.algorithms.private.privacy_plan import privacy_plan
from edgefed.config.recipes.privacy_section import NO_PRIVACY
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.errors import WireError
from edgefed.wire.messages import Task
from edgefed.worker.trainer_cache import TrainerCache
from tests.algorithms.play import task_fields
from tests.worker.tasks import task

TABLES: dict[str, dict[str, Any]] = {
    "images": {"flip": True},
    "labels": {"supplement": 1.0, "noise": "white"},
    "personal": {"preset": "biased"},
    "privacy": {"mechanism": "local", "epsilon": 50.0},
    "secure_aggregation": {"enabled": True},
}
each = pytest.mark.parametrize("table", TABLES)


def recipe(*tables: str) -> Recipe:
    values = {name: TABLES[name] for name in tables}
    return Recipe.model_validate({"rounds": {"count": 3}, "wire": {"uplink": "fp32"}, **values})


def chain(algorithm: Algorithm[Any]) -> list[type[Algorithm[Any]]]:
    """Return the classes of an algorithm and of all that it wraps."""
    inner = chain(algorithm.inner) if isinstance(algorithm, WrappedAlgorithm) else []
    return [type(algorithm), *inner]


def test_a_task_has_a_field_for_each_attribute() -> None:
    names = {each.name for each in fields(Method)}
    assert names == {"algorithm", "settings", "training", *OPTIONAL} == task_fields(recipe()).keys()
    assert names <= Task.model_fields.keys()
    assert TABLES.keys() == OPTIONAL.keys(), "the tests below are about each of them"


def test_a_task_tells_of_unequal_work_only_where_there_is_some() -> None:
    """Devices of earlier releases refuse keys that they do not know."""
    sent = task_fields(recipe())
    assert not {"least_epochs", "seconds"} & sent["training"].keys()
    assert Method.read(sent, find("fedavg").Settings).training == recipe().training
    training = {"epochs": 3, "least_epochs": 2, "seconds": 4.5}
    varied = recipe().model_copy(update={"training": TrainingSection.model_validate(training)})
    assert Method.read(task_fields(varied), find("fedavg").Settings).training == varied.training


def test_a_work_with_epochs_of_its_own_has_no_draw_and_every_limit() -> None:
    training = TrainingSection.model_validate({"epochs": 2, "least_epochs": 1})
    own = replace(schedule_of(training, 1, 1), epochs=9, max_steps=50)
    assert {shortened(own, training, {}, seed) for seed in range(20)} == {own}
    drawn = {shortened(schedule_of(training, 1, 1), training, {}, seed) for seed in range(20)}
    assert {schedule.epochs for schedule in drawn} == {1, 2}
    limited = shortened(own, training, {"work_epochs": 1, "work_steps": 7}, 1)
    assert (limited.epochs, limited.max_steps) == (1, 7)


@each
def test_it_comes_back_whole_from_a_task(table: str) -> None:
    for plan in (recipe(table), recipe(*TABLES)):
        sent = Method.of(plan, make(recipe()).settings).asked("fit", plan.rounds)
        read = Method.read(json.loads(json.dumps(sent.task_fields())), find("fedavg").Settings)
        assert read == sent
        assert getattr(read, table) != getattr(Method.of(recipe(), read.settings), table)


@each
def test_both_halves_are_composed_of_the_same(table: str) -> None:
    plan = recipe(table)
    half, device = make(plan), make_device_half(task_fields(plan))
    assert chain(device) == chain(half)
    assert (chain(half) == chain(make(recipe()))) == (table == "images")
    assert (device.images, device.training) == (half.images, half.training) == (
        plan.images, plan.training,
    )  # fmt: skip


@each
def test_a_device_fills_in_nothing_that_a_task_leaves_out(table: str) -> None:
    fields = task_fields(recipe(table))
    missing = next(iter(fields[table]))
    del fields[table][missing]
    with pytest.raises(WireError, match=f"does not contain {missing} of {table}") as caught:
        make_device_half(fields)
    assert caught.value.code == "wire.incomplete"


def test_tasks_have_the_noise_of_the_plan_and_tests_have_none() -> None:
    plan = recipe("privacy", "images")
    method = Method.of(plan, make(plan).settings)
    assert method.privacy.noise_multiplier is None
    planned = privacy_plan(plan.privacy, plan.rounds).section
    assert planned.noise_multiplier is not None
    assert method.asked("fit", plan.rounds) == replace(method, privacy=planned)
    assert method.asked("evaluate", plan.rounds) == replace(method, privacy=NO_PRIVACY)
    assert method.asked("evaluate", plan.rounds).task_fields()["privacy"] == {}


@each
def test_a_device_makes_another_half_for_another_table(table: str) -> None:
    cache = TrainerCache("cpu")
    plain, other = (
        task().model_copy(update=task_fields(plan)) for plan in (recipe(), recipe(table))
    )
    assert fields_of(other) == task_fields(recipe(table))
    assert cache.algorithm(plain) is cache.algorithm(plain.model_copy(update={"round": 9}))
    assert cache.algorithm(other) is not cache.algorithm(plain)
