"""The estimated memory of training is known before the model is built, and suffices."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError, RecipeError
from edgefed.learn.modeling.model_building import NETWORKS, build
from edgefed.learn.modeling.model_memory import (
    COPIES,
    ModelTooLargeError,
    build_within,
    default_memory,
    training_bytes,
)
from edgefed.process.memory import free_memory

HUGE = {"name": "mlp", "hidden": [65536, 65536]}


def section(**keys: Any) -> ModelSection:
    return ModelSection.model_validate(keys)


def shape_of(name: str) -> tuple[int, ...]:
    return (12,) if name == "lstm" else (3, 32, 32)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_size_of_every_network_is_that_of_the_built_one(name: str) -> None:
    given, shape = section(name=name), shape_of(name)
    weights = build(given, shape, 7, 0).weights()
    before = torch.random.get_rng_state()
    counted = training_bytes(given, shape, 7)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert counted == COPIES * sum(array.nbytes for array in weights.values())


def test_the_size_of_a_users_model_too_and_its_draws_are_not_disturbed() -> None:
    given = section(name="tests.learn.own_models:linear", hidden=300)
    before = torch.random.get_rng_state()
    counted = training_bytes(given, (4, 4), 3, allow_user=True)
    assert torch.equal(torch.random.get_rng_state(), before)
    model = build(given, (4, 4), 3, 5, allow_user=True)
    assert counted == COPIES * sum(array.nbytes for array in model.weights().values())
    within = build_within(given, (4, 4), 3, 5, counted, allow_user=True)
    mine, theirs = within.weights(), model.weights()
    assert all((mine[name] == theirs[name]).all() for name in theirs)


BUILD = """
import json
from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.modeling.model_memory import build_within
section = ModelSection.model_validate(json.loads(sys.argv[1]))
"""


def test_the_limit_holds_to_the_byte() -> None:
    given = section(name="mlp", hidden=[5])
    needed = training_bytes(given, (3,), 2)
    assert needed == COPIES * 4 * (3 * 5 + 5 + 5 * 2 + 2)
    assert build_within(given, (3,), 2, 0, needed).classes == 2
    with pytest.raises(ModelTooLargeError, match=f"{needed} bytes"):
        build_within(given, (3,), 2, 0, needed - 1)


def test_code_that_looks_at_values_is_measured_once_it_is_built() -> None:
    given = section(name="tests.learn.own_models:looking")
    assert training_bytes(given, (4,), 3, allow_user=True) is None
    assert build_within(given, (4,), 3, 0, 10**6, allow_user=True).classes == 3
    with pytest.raises(ModelTooLargeError):
        build_within(given, (4,), 3, 0, 100, allow_user=True)


def test_what_is_wrong_with_a_model_is_said_as_before() -> None:
    with pytest.raises(RecipeError, match="There is no model 'mlq'"):
        build_within(section(name="mlq"), (4,), 3, 0, 10**9)
    with pytest.raises(DataError, match="which is not allowed here"):
        build_within(section(name="tests.learn.own_models:linear"), (4,), 3, 0, 10**9)
    with pytest.raises(RecipeError, match="ValueError: no model for 3 classes"):
        build_within(
            section(name="tests.learn.own_models:raising"), (4,), 3, 0, 10**9, allow_user=True
        )


def test_half_of_what_is_free_is_the_default() -> None:
    half = default_memory(torch.device("cpu"))
    assert 0 < half <= free_memory() // 2 * 1.5
