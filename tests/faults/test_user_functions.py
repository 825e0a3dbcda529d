"""Users' own losses and metrics over a real broker: the simulator's bits, and who refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.run_store import Store
from edgefed.errors import EdgeFedError
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import fleet

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

HERE = "tests.learn.own_functions"
ALLOWED = {"user_models": "true"}
REFUSING = "device-02"


def recipe(quorum: float) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "own-functions",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [16]},
            "data": {"partition": "classes", "classes_per_device": 4, "limit": 300},
            "training": {"batch_size": 8, "learning_rate": 0.1, "loss": f"{HERE}:focal"},
            "rounds": {"count": 2, "lost_grace": "deadline", "min_devices": 3, "quorum": quorum},
            "evaluation": {"metrics": [f"{HERE}:even_recall"]},
            "simulation": {"devices": 3},
        }
    )


def test_a_fleet_that_allows_it_ends_as_a_simulation_and_who_does_not_refuses(
    tmp_path: Path,
) -> None:
    settings = dict.fromkeys(("coordinator", "device-00", "device-01", REFUSING), ALLOWED)
    with fleet(tmp_path / "home", recipe(1.0), settings=settings) as home:
        record = home.finish(home.begin())
        assert record["status"] == "finished", record["reason"]

        del settings[REFUSING]
        home.restart(REFUSING)
        home.wait_for_devices(3)
        without = home.finish(home.begin(recipe(0.5)))
        refused = home.events(without["run"], "reply", outcome="refused")

        del settings["coordinator"]
        home.restart("coordinator")
        with pytest.raises(EdgeFedError) as caught:
            home.begin()
    virtual = Simulation(recipe(1.0), tmp_path / "sim", SystemClock()).run()
    assert record["weights_digest"] == virtual.record.weights_digest
    rows = Store(tmp_path / "sim").rounds(virtual.record.run)
    names = ("loss", "accuracy", "even_recall")
    assert [[row[name] for name in names] for row in rows] == [
        [row[name] for name in names] for row in record["history"]
    ]
    assert without["status"] == "finished", without["reason"]
    assert [row["replies"] for row in without["history"]] == [2, 2]
    assert {each["device"] for each in refused} == {REFUSING}
    assert refused[0]["reason"] == (
        f"it does not run {HERE}:focal: user_models is off in its settings"
    )
    assert caught.value.code == "loss.refused"
    assert f"{HERE}:focal" in caught.value.message
