"""A partly frozen model over a broker: sent once, kept through SIGKILL, the simulator's bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, fleet
from tests.faults.traffic_meter import Meter
from tests.faults.traffic_recorder import Spy

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

DEVICES = device_names(3)
TRUNK = 4 * (64 * 200 + 200)
HEAD = 4 * (200 * 10 + 10)
HEADER = 400
"""Bytes of both parts of the network 64-200-10, and most bytes of a blob's header."""


def recipe() -> Recipe:
    return Recipe.model_validate(
        {
            "name": "frozen",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [200], "train": "head"},
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
            "simulation": {"devices": 3},
        }
    )


def test_frozen_weights_are_sent_once_and_a_second_run_starts_from_the_first(
    tmp_path: Path,
) -> None:
    plan = recipe()
    with fleet(tmp_path / "home", plan) as home:
        spy, meter = Spy(home.address, FLEET), Meter(home.address, FLEET)
        try:
            run = home.begin()
            spy.at(2, "training", "device-01", lambda: home.kill("device-01"))
            home.start("device-01")
            spy.at(3, "training", "device-02", lambda: home.kill("coordinator"))
            home.start("coordinator")
            record = home.finish(run)
        finally:
            spy.close()
            meter.close()
        keys = {"name": "mlp", "hidden": [200], "train": "all", "start": f"run:{run}"}
        second = Recipe.model_validate({**plan.model_dump(), "model": keys})
        again = home.finish(home.begin(second))
    assert record["status"] == "finished", record["reason"]
    virtual = Simulation(plan, tmp_path / "sim", SystemClock()).run()
    assert record["weights_digest"] == virtual.record.weights_digest

    trained = [task for task in meter.tasks if task.question == "fit"]
    assert {tuple(sorted(task.blobs)) for task in trained} == {("frozen", "weights")}
    (frozen,) = meter.blobs("frozen")
    for task in trained:
        assert HEAD < task.blobs["weights"].size < HEAD + HEADER
        assert TRUNK < task.blobs["frozen"].size < TRUNK + HEADER
    wanted = [device for device, digest in meter.begun if digest == frozen]
    assert sorted(wanted) == list(DEVICES), "once each, whoever was killed"

    folder = virtual.folder
    start = str(folder / "model.safetensors")
    keys["start"] = start
    onward = Recipe.model_validate({**plan.model_dump(), "model": keys})
    continued = Simulation(onward, tmp_path / "onward", SystemClock()).run()
    assert again["status"] == "finished", again["reason"]
    assert again["weights_digest"] == continued.record.weights_digest
    before, after = (load_file(each / "model.safetensors") for each in (folder, continued.folder))
    assert not np.array_equal(before["fc1.weight"], after["fc1.weight"]), "all is trained now"
