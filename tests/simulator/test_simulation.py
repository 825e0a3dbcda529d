"""A recipe on virtual devices: what a run depends on, and what it leaves on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import edgefed
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import DataError, RecipeError, UnknownNameError
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.simulator.local_fleet import newcomers_of
from edgefed.simulator.run import Simulation, SimulationResult
from tests.run_fixture import COARSE, Ticking, samples
from tests.simulator.work import finished, rows, write_samples


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data set of 60 samples of three labels to train on, and 15 to test on."""
    return write_samples(tmp_path / "data.npz", samples(60, 1), samples(15, 2))


def recipe(path: Path, **sections: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "seed": 5,
            "model": {"name": "mlp", "hidden": [4]},
            "data": {"name": "npz", "path": str(path), "partition": "iid"},
            "rounds": {"count": 2, "cohort": 3},
            "simulation": {"devices": 4, "holdout": 0.2, "workers": 1},
            "evaluation": {"on": "both"},
            "wire": COARSE,
            **sections,
        }
    )


def test_another_seed_ends_in_other_bits(data: Path, tmp_path: Path) -> None:
    """That the same seed ends in the same is in the contract of an algorithm."""
    digests = {
        finished(recipe(data, seed=seed), tmp_path / str(seed)).record.weights_digest
        for seed in (5, 6)
    }
    assert len(digests) == 2


def test_a_run_during_another_in_its_folder_leaves_the_others_blobs(
    data: Path, tmp_path: Path
) -> None:
    within: list[SimulationResult] = []

    def begin_another(*_: object) -> None:
        within.append(finished(recipe(data), tmp_path / "state"))

    outer = Simulation(recipe(data), tmp_path / "state", Ticking(), on_round=begin_another).run()
    assert outer.record.status == "finished", outer.record.reason
    assert {each.record.weights_digest for each in (outer, *within)} == {
        outer.record.weights_digest
    }
    assert len(within) == 2
    assert not list((tmp_path / "state").glob("**/blobs*")), "they are removed at the end"


def test_what_is_left_on_disk_tells_the_run(data: Path, tmp_path: Path) -> None:
    result = finished(recipe(data), tmp_path / "state")
    names = {path.name for path in result.folder.iterdir()}
    assert {"recipe.toml", "events.jsonl", "model.safetensors"} <= names
    lines = (result.folder / "events.jsonl").read_text().splitlines()
    builder = SnapshotBuilder(Snapshot())
    for line in lines:
        builder.apply(Event.from_flat(json.loads(line)))
    snapshot = builder.snapshot()
    assert snapshot.run is not None
    assert snapshot.run.status == "finished"
    assert snapshot.run.weights_digest == result.record.weights_digest
    assert [row.round for row in snapshot.rounds] == [1, 2]
    assert snapshot.rounds[-1].accuracy == result.record.accuracy
    assert len(snapshot.devices) == 4


def test_a_simulation_listens_to_orders(data: Path, tmp_path: Path) -> None:
    simulation = Simulation(recipe(data), tmp_path / "state", Ticking())
    simulation.controls.order("finish")
    assert simulation.run().record.round == 1


@pytest.mark.parametrize(
    ("sections", "error"),
    [
        ({"data": {"name": "none"}}, DataError),
        ({"data": {"name": "npz", "path": "absent.npz"}}, DataError),
        ({"algorithm": {"name": "alchemy"}}, UnknownNameError),
        ({"algorithm": {"name": "fedavg", "mu": -1}}, RecipeError),
        ({"simulation": {"devices": 61}}, DataError),
        ({"model": {"name": "cnn"}}, DataError),
        ({"model": {"name": "nowhere:make"}}, RecipeError),
    ],
    ids=["none", "absent", "algorithm", "settings", "devices", "model", "user model"],
)
def test_a_recipe_that_cannot_be_run_is_refused_before_anything_is_written(
    sections: dict[str, Any], error: type[Exception], data: Path, tmp_path: Path
) -> None:
    with pytest.raises(error):
        Simulation(recipe(data, **sections), tmp_path / "state", Ticking())
    assert not (tmp_path / "state").exists()


def test_newcomers_test_and_never_train(data: Path, tmp_path: Path) -> None:
    asked: dict[str, set[str]] = {"fit": set(), "evaluate": set()}

    class Watched(Simulation):
        def run(self) -> SimulationResult:
            inner = self._engine._fleet.put

            def put(exchange: OpenExchange, *, shared: bool = False) -> None:
                for task in exchange.tasks:
                    asked[task.question].add(task.device)
                inner(exchange, shared=shared)

            self._engine._fleet.put = put  # type: ignore[method-assign]
            return super().run()

    parts = {"devices": 5, "holdout": 0.2, "workers": 1, "newcomers": 2}
    rounds = {"count": 3, "cohort": 2, "test_cohort": 0}
    chosen = recipe(data, simulation=parts, rounds=rounds)
    result = Watched(chosen, tmp_path / "state", Ticking()).run()
    assert asked["evaluate"] == {f"device-0{number}" for number in range(5)}
    new = {f"device-0{number}" for number in newcomers_of(chosen.simulation, chosen.seed)}
    assert len(new) == 2
    assert asked["fit"] == asked["evaluate"] - new
    drawn = {newcomers_of(chosen.simulation, seed) for seed in range(20)}
    assert frozenset.union(*drawn) == {0, 1, 2, 3, 4}
    for row in rows(result):
        assert (row["devices_newcomer"], row["devices_participant"]) == (2, 3)
        whole = 2 * row["loss_newcomer"] + 3 * row["loss_participant"]
        assert row["device_loss"] == pytest.approx(whole / 5)
    plain = recipe(data, simulation={**parts, "newcomers": 0}, rounds={"count": 3})
    lines = (finished(plain, tmp_path / "plain").folder / "metrics.jsonl").read_text()
    assert "newcomer" not in lines
    with pytest.raises(ValidationError, match="below the number of devices, which is 2"):
        recipe(data, simulation={"devices": 2, "newcomers": 2})


def test_devices_that_missed_rounds_are_sent_less_than_whole_weights() -> None:
    """Two of twelve devices take part in a round; a newcomer needs 0.6 of a model."""
    result = edgefed.simulate(
        {
            "model": {"name": "mlp", "hidden": [128]},
            "rounds": {"count": 12, "cohort": 2},
            "wire": {"downlink": "topk"},
            "evaluation": {"every": 0},
            "simulation": {"devices": 12, "engine": "sequential", "workers": 1},
        },
        seed=1,
    )
    size = sum(array.nbytes for array in result.weights.values())
    sent = [row["sent"] / 2 / size for row in result.rounds]
    assert 0.5 < sent[0] < 0.65
    assert max(sent[6:]) < 0.5
