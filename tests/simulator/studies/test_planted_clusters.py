"""Clusters of devices that a recipe plants, and how well experts find them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.config.recipes.recipe import Recipe
from edgefed.data.devices.partition import deal, planted_orders
from edgefed.data.sets.datasets import load
from edgefed.data.transforms.apply import label_orders
from edgefed.events.base.method_tables import table_events, within_limits
from edgefed.events.base.model import Event
from edgefed.events.methods.expert_tables import mixture_row, mixture_table
from edgefed.seeds import generator
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.sweep.planted_clusters import PlantedClusters, matched

pytest.importorskip("sklearn", reason="the digits are not installed")

COUNTS = st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=4)


def _recipe(transform: str = "permutation") -> Recipe:
    data = {"name": "digits", "partition": "iid", "transform": transform, "permutations": 3}
    return Recipe.model_validate({"seed": 4, "data": data, "simulation": {"devices": 12}})


def _told(shares: list[list[float]]) -> Event:
    rows = [
        mixture_row(device, 1, 1, each, range(len(each)))
        for device, each in zip(device_names(12), shares, strict=True)
    ]
    (view,) = within_limits([mixture_table(len(shares[0]), rows)])
    (fields,) = table_events("r-1", 1, None, view)
    return Event(kind="table", time="2024-05-06T07:08:09Z", fields=fields)


def test_the_planted_order_is_the_one_that_a_device_was_dealt() -> None:
    recipe = _recipe()
    dataset = load(recipe.data, None, recipe.seed)
    planted = planted_orders(recipe.data, 12, recipe.seed)
    orders = label_orders(10, 3, generator(recipe.seed, "partition", "orders"))
    plain = _recipe("none").data
    pairs = zip(
        deal(dataset, plain, 12, 0, recipe.seed),
        deal(dataset, recipe.data, 12, 0, recipe.seed),
        strict=True,
    )
    assert set(planted.tolist()) == {0, 1, 2}
    for number, (before, after) in enumerate(pairs):
        assert np.array_equal(orders[planted[number]][before.train.targets], after.train.targets)
    assert len(planted_orders(plain, 12, recipe.seed)) == 0


@given(COUNTS)
def test_the_matching_is_the_best_of_all(rows: list[list[int]]) -> None:
    counts = np.array(rows)
    square = np.zeros((4, 4), np.int64)
    square[: len(rows), :3] = counts
    places = range(4)
    best = max(sum(square[k, p[k]] for k in places) for p in permutations(places))
    assert matched(counts) == best


def test_scores_do_not_depend_on_the_numbers_of_experts() -> None:
    recipe = _recipe()
    planted = planted_orders(recipe.data, 12, recipe.seed)
    clusters = PlantedClusters(recipe)
    assert clusters.scores() == {}
    clusters.hear(_told([[1.0, 0.0, 0.0]] * 12))
    most = np.bincount(planted).max() / 12
    assert clusters.scores() == {"cluster_accuracy": most, "cluster_purity": most}
    turned = np.eye(3)[(planted + 1) % 3]
    clusters.hear(_told(turned.tolist()))
    assert clusters.scores() == {"cluster_accuracy": 1, "cluster_purity": 1}
    split = np.eye(4)[np.where((planted == 0) & (np.arange(12) % 2 == 0), 3, planted)]
    clusters.hear(_told(split.tolist()))
    scores = clusters.scores()
    assert scores["cluster_accuracy"] < scores["cluster_purity"] == 1


def test_without_planted_clusters_there_is_no_score() -> None:
    clusters = PlantedClusters(_recipe("none"))
    clusters.hear(_told([[1.0, 0.0]] * 12))
    assert clusters.scores() == {}
