"""A mixture of experts over a real broker: the simulator's bits, though a device is killed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.coordinator.store import Store
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, fleet
from tests.faults.traffic_meter import Meter
from tests.faults.traffic_recorder import Spy

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

DEVICES, K = 8, 4
VICTIM = "device-03"
EXPERT = 4 * (64 * 8 + 8 + 8 * 10 + 10)
TABLE = 4 * 10 * K
HEADER = 11 + sum(len(name) + 24 for name in ("fc1.weight", "fc1.bias", "out.weight", "out.bias"))
"""Most bytes before the floats of an expert; see docs/experts.md."""


def recipe() -> Recipe:
    return Recipe.model_validate(
        {
            "name": "experts",
            "seed": 3,
            "model": {"name": "mlp", "hidden": [8]},
            "algorithm": {
                "name": "fedmoe",
                "experts": K,
                "prune": 0.9,
                "table_learning_rate": 0.3,
                "server_learning_rate": 0.05,
            },
            "data": {"name": "digits", "limit": 600, "partition": "classes"},
            "training": {"batch_size": 8, "learning_rate": 0.1},
            "rounds": {
                "count": 3,
                "cohort": DEVICES,
                "lost_grace": "deadline",
                "quorum": 1.0,
                "min_devices": DEVICES,
            },
            "evaluation": {"every": 0},
            "wire": {"downlink": "fp32", "uplink": "int8"},
            "simulation": {"devices": DEVICES},
        }
    )


def test_a_killed_device_goes_on_with_its_gate(tmp_path: Path) -> None:
    plan = recipe()
    with fleet(tmp_path / "home", plan, holdout=0.2) as home:
        spy, meter = Spy(home.address, FLEET), Meter(home.address, FLEET)
        try:
            run = home.begin()
            spy.at(2, "training", VICTIM, lambda: home.kill(VICTIM))
            home.start(VICTIM)
            record = home.finish(run)
        finally:
            spy.close()
            meter.close()
    assert record["status"] == "finished", record["reason"]
    virtual = Simulation(plan, tmp_path / "sim", SystemClock()).run().record
    assert record["weights_digest"] == virtual.weights_digest
    with closing(Store(tmp_path / "sim")) as store:
        last, same = record["history"][-1], store.rounds(virtual.run)[-1]
    for name in ("device_accuracy", "accuracy_known", "loss_known", "devices_known"):
        assert last[name] == same[name]

    trained = [task for task in meter.tasks if task.question == "fit"]
    assert len(trained) >= 3 * DEVICES
    for task in trained:
        experts = [name for name in task.blobs if name != "table"]
        assert experts == [f"expert-{number}" for number in task.params["experts"]]
        for name in experts:
            assert EXPERT < task.blobs[name].size < EXPERT + HEADER
        assert TABLE < task.blobs["table"].size < TABLE + HEADER
    assert any(len(task.blobs) < K + 1 for task in trained), "unused experts are not sent"
