"""Personal weights over a real broker: never sent, kept through a SIGKILL, the simulator's bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, fleet
from tests.faults.traffic_meter import Meter
from tests.faults.traffic_recorder import Spy

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

DEVICES = device_names(3)
SHARED = 4 * (64 * 16 + 16 * 10)
PERSONAL = 4 * (16 + 10)
HEADER = 400
"""Bytes of the floats in each blob of the network 64-16-10, and most bytes of a blob's header."""


def recipe() -> Recipe:
    return Recipe.model_validate(
        {
            "name": "personal",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [16]},
            "personal": {"weights": ["*.bias"]},
            "data": {"partition": "classes", "classes_per_device": 4, "limit": 300},
            "training": {"batch_size": 8, "learning_rate": 0.05},
            "rounds": {
                "count": 3,
                "cohort": 3,
                "lost_grace": "deadline",
                "quorum": 1.0,
                "min_devices": 3,
            },
            "wire": {"downlink": "fp32", "uplink": "int8"},
            "evaluation": {"on": "coordinator"},  # the agents here hold out no samples
            "simulation": {"devices": 3},
        }
    )


def test_a_killed_device_goes_on_from_its_own_weights(tmp_path: Path) -> None:
    plan = recipe()
    with fleet(tmp_path / "home", plan) as home:
        spy, meter = Spy(home.address, FLEET), Meter(home.address, FLEET)
        try:
            run = home.begin()
            spy.at(2, "training", "device-01", lambda: home.kill("device-01"))
            home.start("device-01")
            record = home.finish(run)
        finally:
            spy.close()
            meter.close()
    assert record["status"] == "finished", record["reason"]
    virtual = Simulation(plan, tmp_path / "sim", SystemClock()).run().record
    assert record["weights_digest"] == virtual.weights_digest

    trained = [task for task in meter.tasks if task.question == "fit"]
    assert {tuple(sorted(task.blobs)) for task in trained} == {("personal-start", "weights")}
    (start,) = {task.blobs["personal-start"].digest for task in trained}
    assert len(meter.blobs("weights")) == 3
    for task in trained:
        assert SHARED < task.blobs["weights"].size < SHARED + HEADER
        assert PERSONAL < task.blobs["personal-start"].size < PERSONAL + HEADER
    wanted = [device for device, digest in meter.needs if digest == start]
    assert sorted(wanted) == list(DEVICES)
