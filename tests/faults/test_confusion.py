"""Counts by class over a real broker: those of a simulation, kept after kills, and withheld."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.process.run_views import whole_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.events.base.method_tables import SYSTEM
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from tests.cli.commands import Told, edgefed
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

HOLDOUT = 0.2


def plan() -> Recipe:
    return Recipe.model_validate(
        {
            "name": "counted",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"name": "digits", "limit": 300, "partition": "iid"},
            "rounds": {"count": 2, "quorum": 1.0, "min_devices": 3},
            "evaluation": {"on": "both"},
            "simulation": {"devices": 3, "holdout": HOLDOUT},
        }
    )


def run_command(home: FleetProcesses, *words: str) -> Told:
    common = ("--no-config", "--fleet", FLEET, "--broker", str(home.address))
    return edgefed(*common, "run", *words)


def scores(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what rounds measured of the model, without times and bytes."""
    moved = ("seconds", "slowest", "slowest_seconds", "sent", "received")
    return [
        {name: row[name] for name in row if name not in moved and not name.startswith(SYSTEM)}
        for row in history
    ]


def test_a_fleet_counts_what_a_simulation_counts(tmp_path: Path) -> None:
    simulated = Simulation(plan(), tmp_path / "virtual", SystemClock()).run().record
    virtual = whole_run(Store(tmp_path / "virtual"), simulated.run)
    settings: dict[str, dict[str, str]] = {"device-01": {}}
    with fleet(tmp_path / "home", plan(), holdout=HOLDOUT, settings=settings) as home:
        run = home.begin()
        real = home.finish(run)
        assert real["weights_digest"] == simulated.weights_digest
        assert real["confusions"] == virtual["confusions"]
        assert scores(real["history"]) == scores(virtual["history"])
        on_coordinator, on_devices = real["confusions"]
        assert (on_coordinator["place"], on_devices["place"]) == ("coordinator", "devices")
        assert (on_devices["devices"], on_devices["tested"]) == (3, 3)

        home.kill("coordinator")
        home.start("coordinator")
        home.wait_for_devices(3)
        assert run_command(home, "show", "--json").json["confusions"] == real["confusions"]
        shown = run_command(home, "show").out
        assert "Tested in round 2, " in shown
        assert all(len(line) <= 80 for line in shown[shown.index("Tested in") :].splitlines())

        home.kill("device-01")
        settings["device-01"] = {"share_labels": "false"}
        home.start("device-01")
        home.wait_for_devices(3)
        told = run_command(home, "evaluate", "--on", "devices", "--json").json
        (fewer,) = told["confusions"]
        assert (fewer["devices"], fewer["tested"]) == (2, 3)
        withheld = next(each for each in told["devices"] if each["device"] == "device-01")
        counted = sum(map(sum, fewer["matrix"]))
        assert counted == sum(map(sum, on_devices["matrix"])) - withheld["samples"]
        assert told["scores"]["accuracy"] == real["history"][-1]["device_accuracy"]
        text = run_command(home, "evaluate", "--on", "devices").out
        assert "1 of 3 devices shared no labels" in " ".join(text.split())
