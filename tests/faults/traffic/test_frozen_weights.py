"""A partly frozen model over a broker: sent once, kept through SIGKILL, the simulator's bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgefed.config.recipes.recipe import Recipe
from edgefed.process.clock import SystemClock
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until
from tests.faults.traffic.traffic_meter import Meter
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


def left(home: FleetProcesses, digests: set[str]) -> list[str]:
    """Return the devices that keep one of these blobs."""
    folder = home.folder / "state" / "agents" / FLEET
    return [
        device
        for device in DEVICES
        if digests & {path.name for path in (folder / device / "blobs").iterdir()}
    ]


def aborted_and_resumed(home: FleetProcesses, plan: Recipe) -> dict[str, Any]:
    """Abort a run, have the devices drop its blobs, and take it up again; return its record."""
    spy, meter = Spy(home.address, FLEET), Meter(home.address, FLEET)
    try:
        run = home.begin(plan)
        spy.at(2, "training", DEVICES[0], lambda: home.order(run, "abort"))
        assert home.finish(run)["status"] == "aborted"
        assert meter.blobs("weights")
        wait_until(lambda: not left(home, meter.blobs("weights")), "the drop of blobs", home.logs)
        home.resume(run)
        wait_until(lambda: home.record(run)["status"] != "aborted", "the run", home.logs)
        return home.finish(run)
    finally:
        spy.close()
        meter.close()


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
        wait_until(lambda: not left(home, meter.blobs("weights")), "the drop of blobs", home.logs)
        assert left(home, meter.blobs("frozen")) == list(DEVICES), "a next run may have the same"
        keys = {"name": "mlp", "hidden": [200], "train": "all", "start": f"run:{run}"}
        second = Recipe.model_validate({**plan.model_dump(), "model": keys})
        again = aborted_and_resumed(home, second)
    assert record["status"] == "finished", record["reason"]
    virtual = Simulation(plan, tmp_path / "sim", SystemClock()).run()
    assert record["weights_digest"] == virtual.record.weights_digest

    trained = [task for task in meter.tasks if task.question == "fit"]
    assert {tuple(sorted(task.blobs)) for task in trained} == {("frozen", "weights")}
    assert len(meter.blobs("frozen")) == 1
    frozen = meter.ways("frozen")
    for task in trained:
        assert HEAD < task.blobs["weights"].size < HEAD + HEADER
        assert TRUNK < task.blobs["frozen"].size < TRUNK + HEADER
    wanted = [device for device, digest in meter.begun if digest in frozen]
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
