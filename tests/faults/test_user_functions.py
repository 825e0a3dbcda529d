"""Users' own losses and metrics over a real broker: the simulator's bits, and who refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def recipe(**rounds: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "own-functions",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [16]},
            "data": {"partition": "classes", "classes_per_device": 4, "limit": 300},
            "training": {"batch_size": 8, "learning_rate": 0.1, "loss": f"{HERE}:focal"},
            "rounds": {"count": 2, "lost_grace": "deadline", "min_devices": 3, **rounds},
            "evaluation": {"metrics": [f"{HERE}:even_recall"]},
            "simulation": {"devices": 3},
        }
    )


def test_a_fleet_that_allows_it_ends_as_a_simulation(tmp_path: Path) -> None:
    plan = recipe(quorum=1.0)
    everybody = ("coordinator", "device-00", "device-01", "device-02")
    settings = dict.fromkeys(everybody, ALLOWED)
    with fleet(tmp_path / "home", plan, settings=settings) as home:
        record = home.finish(home.begin())
    assert record["status"] == "finished", record["reason"]
    virtual = Simulation(plan, tmp_path / "sim", SystemClock()).run()
    assert record["weights_digest"] == virtual.record.weights_digest
    rows = Store(tmp_path / "sim").rounds(virtual.record.run)
    told = [[row[name] for name in ("loss", "accuracy", "even_recall")] for row in rows]
    assert told == [
        [row[name] for name in ("loss", "accuracy", "even_recall")] for row in record["history"]
    ]


def test_a_device_without_consent_refuses_and_the_round_goes_on(tmp_path: Path) -> None:
    settings = dict.fromkeys(("coordinator", "device-00", "device-01"), ALLOWED)
    with fleet(tmp_path / "home", recipe(quorum=0.5), settings=settings) as home:
        record = home.finish(home.begin())
        refused = home.events(record["run"], "reply", outcome="refused")
    assert record["status"] == "finished", record["reason"]
    assert [row["replies"] for row in record["history"]] == [2, 2]
    assert {each["device"] for each in refused} == {REFUSING}
    assert refused[0]["reason"] == (
        f"it does not run {HERE}:focal: user_models is off in its settings"
    )


def test_a_coordinator_without_consent_starts_no_such_run(tmp_path: Path) -> None:
    with (
        fleet(tmp_path / "home", recipe(), absent=("device-00", "device-01", REFUSING)) as home,
        pytest.raises(EdgeFedError) as caught,
    ):
        home.begin()
    assert caught.value.code == "loss.refused"
    assert f"{HERE}:focal" in caught.value.message
