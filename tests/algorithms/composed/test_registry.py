"""Algorithms by name."""

from __future__ import annotations

import pytest

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.composed.registry import algorithms, find, make
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.layers import Origin, ValueLayer
from edgefed.errors import RecipeError, UnknownNameError


def test_names_are_sorted_and_lead_to_their_class() -> None:
    assert list(algorithms()) == sorted(algorithms())
    assert find("fedavg") is FedAvg
    assert "algorithm" not in algorithms(), "the abstract base is none"


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'fedprox'") as caught:
        find("fedprx")
    assert caught.value.code == "algorithm.unknown"
    assert caught.value.hint == "edgefed algo list"


@pytest.mark.parametrize(
    "section", [{"mu": -1}, {"weighing": "uniform"}, {"server": "lion"}, {"beta1": 1.0}]
)
def test_wrong_settings_are_refused(section: dict[str, object]) -> None:
    with pytest.raises(RecipeError) as caught:
        make(Recipe.model_validate({"algorithm": {"name": "fedavg", **section}}))
    assert next(iter(section)) in caught.value.message
    assert caught.value.hint


def test_a_wrong_setting_is_told_with_its_line() -> None:
    values = {"algorithm": {"name": "fedavg", "mu": -1}}
    layer = ValueLayer(values, {("algorithm", "mu"): Origin("file", "recipe.toml", 7)})
    with pytest.raises(RecipeError, match=r"recipe\.toml:7: algorithm\.mu"):
        make(Recipe.model_validate(values), layer)


def test_settings_reach_the_algorithm() -> None:
    made = make(Recipe.model_validate({"algorithm": {"name": "fedprox", "mu": 0.5}}))
    assert made.settings.mu == 0.5
