"""The gradient divergence of averaging: a number of each round that changes no bit."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.averaging.fedavg import FedAvg, trained
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import RecipeError
from edgefed.learn.base.types import Tensors
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_replies
from tests.run_fixture import recipe, shards


def plan(**settings: Any) -> Recipe:
    return recipe(algorithm={"name": "fedavg", **settings})


class Watching(FedAvg):
    """Remembers the answers of each merge."""

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        self.seen = list(answers)
        return super().merge(state, exchange, self.seen)


def naive(answers: list[Answer]) -> float:
    """Equation 17, summed over the tensors."""
    total = sum(answer.samples for answer in answers)
    deltas: list[tuple[float, Tensors]] = [
        (answer.samples / total, answer.groups["delta"].arrays) for answer in answers
    ]
    found = 0.0
    for name in deltas[0][1]:
        for (p, one), (q, other) in product(deltas, deltas):
            a, b = (each[name].astype(np.float64).ravel() for each in (one, other))
            found += p * q * 0.5 * (1 - float(a @ b) / float(np.sqrt((a @ a) * (b @ b))))
    return found


def test_every_round_has_the_number_and_the_weights_are_the_same(world: MakeWorld) -> None:
    measured, plain = world(plan(divergence=True)), world(plan())
    algorithm = Watching(
        FedAvg.Settings(divergence=True),  # type: ignore[call-arg, arg-type]
        measured.recipe.training,
        measured.recipe.rounds,
    )
    assert measured.engine(algorithm=algorithm).run().status == "finished"
    plain.engine().run()
    assert measured.record.weights_digest == plain.record.weights_digest
    assert [
        set(row) - set(other) for row, other in zip(measured.rows, plain.rows, strict=True)
    ] == [{"divergence"}] * 3
    assert measured.rows[-1]["divergence"] == pytest.approx(naive(algorithm.seen), abs=1e-5)
    file = measured.store().run_folder(measured.run) / "metrics.csv"
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [float(row["divergence"]) for row in rows] == [
        row["divergence"] for row in measured.rows
    ]


def test_a_killed_run_measures_the_same(world: MakeWorld) -> None:
    whole, cut = world(plan(divergence=True)), world(plan(divergence=True))
    whole.engine().run()
    with pytest.raises(PowerCut):
        cut_in_replies(cut, Fuse(6))
    cut.engine().run()
    assert [row["divergence"] for row in cut.rows] == [row["divergence"] for row in whole.rows]


def test_a_lone_device_does_not_diverge(world: MakeWorld) -> None:
    run = world(plan(divergence=True), shards((6,)))
    run.engine().run()
    assert [row["divergence"] for row in run.rows] == pytest.approx([0, 0, 0], abs=1e-5)


def test_statistics_of_batch_normalisation_are_not_updates() -> None:
    weights: Tensors = {
        "norm.weight": np.zeros(2, np.float32),
        "norm.running_mean": np.zeros(2, np.float32),
        "norm.num_batches_tracked": np.array(0, np.int64),
    }
    assert list(trained(weights)) == ["norm.weight"]


def test_clustered_models_refuse_it() -> None:
    with pytest.raises(RecipeError, match="divergence"):
        make(recipe(algorithm={"name": "ifca", "divergence": True}))
