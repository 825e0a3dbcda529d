"""Floods on a live fleet without an access list: the run ends with the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.attacks.flooding import FLOODS, publish
from edgefed.config.recipes.recipe import Recipe
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from edgefed.wire.topics import Topics
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until

RECIPE = Recipe.model_validate(
    {
        "name": "floods",
        "seed": 3,
        "model": {"name": "mlp", "hidden": [32]},
        "data": {"classes_per_device": 5, "limit": 200},
        "rounds": {
            "count": 16,
            "cohort": 2,
            "lost_grace": "deadline",
            "quorum": 1.0,
            "min_devices": 3,
        },
        "wire": {"downlink": "int8", "uplink": "int8"},
        "simulation": {"devices": 3},
    }
)
COUNTS = {"needs": 20_000, "births": 20_000, "tasks": 100_000, "states": 20_000}


def not_read(home: FleetProcesses, flood: str) -> int:
    """Return how many messages of a flood were counted and not read."""
    if flood == "tasks":
        (status,) = home.folder.glob("state/agents/*/device-00/status.json")
        return sum(json.loads(status.read_text())["over_limits"].values())
    return sum(home._ask("snapshot")["inbox"]["refused"].values())


@pytest.mark.slow
@pytest.mark.mosquitto
@pytest.mark.parametrize("flood", COUNTS)
def test_a_run_ends_with_the_same_bits_in_a_flood(flood: str, tmp_path: Path) -> None:
    undisturbed = Simulation(RECIPE, tmp_path / "sim", SystemClock()).run().record
    with fleet(tmp_path / "home", RECIPE) as home:
        home.wait_for_devices(3)
        run = home.begin()
        wait_until(lambda: home.record(run)["round"] >= 2, "the second round")
        messages = FLOODS[flood](Topics(FLEET), [*home._sources], COUNTS[flood])
        publish(home.address, messages)
        wait_until(lambda: not_read(home, flood) > 1000, "the count")
        record = home.finish(run)
        alive = {name: process.poll() for name, process in home.processes.items()}
        names = set(home.devices())
    assert record["status"] == "finished", record["reason"]
    assert record["weights_digest"] == undisturbed.weights_digest
    assert set(alive.values()) == {None}
    assert names == {"device-00", "device-01", "device-02"}, "nobody else has joined"
