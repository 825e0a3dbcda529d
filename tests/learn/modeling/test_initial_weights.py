"""Further initial weights: other values, the same distribution, and only the words decide."""

from __future__ import annotations

import numpy as np
import pytest

from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.initial_weights import redrawn
from edgefed.learn.modeling.model_building import build


@pytest.fixture(scope="module")
def weights() -> Tensors:
    return build(ModelSection(name="resnet20", norm="batch"), (3, 8, 8), 10, seed=1).weights()


def test_every_tensor_keeps_its_values_shape_and_type(weights: Tensors) -> None:
    drawn = redrawn(weights, 7, "cluster", 1)
    assert list(drawn) == list(weights)
    for name, array in drawn.items():
        assert (array.shape, array.dtype) == (weights[name].shape, weights[name].dtype)
        assert np.array_equal(np.sort(array, axis=None), np.sort(weights[name], axis=None))
        assert array.flags.c_contiguous


def test_models_of_other_words_or_seeds_are_unrelated(weights: Tensors) -> None:
    name = max(weights, key=lambda each: weights[each].size)
    sets = [weights, redrawn(weights, 7, "cluster", 1), redrawn(weights, 7, "cluster", 2)]
    sets.append(redrawn(weights, 8, "cluster", 1))
    columns = np.stack([each[name].ravel() for each in sets])
    off_diagonal = np.corrcoef(columns) - np.eye(len(sets))
    assert np.abs(off_diagonal).max() < 5 / np.sqrt(columns.shape[1])


def test_what_is_constant_at_the_start_stays(weights: Tensors) -> None:
    drawn = redrawn(weights, 7, "cluster", 1)
    kept = [name for name, array in weights.items() if np.unique(array).size == 1]
    assert any(name.endswith("running_var") for name in kept)
    assert all(np.array_equal(drawn[name], weights[name]) for name in kept)


def test_the_order_depends_on_words_and_seed_alone(weights: Tensors) -> None:
    before = {name: array.copy() for name, array in weights.items()}
    first = redrawn(weights, 7, "expert", 3)
    alone = dict(list(weights.items())[-3:])
    for name, array in redrawn(alone, 7, "expert", 3).items():
        assert np.array_equal(array, first[name])
    assert all(np.array_equal(weights[name], before[name]) for name in weights)
