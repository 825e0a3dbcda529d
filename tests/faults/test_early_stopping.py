"""Early stopping over a real broker gives the simulator's round and files, also after SIGKILL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.simulator.run import Simulation
from edgefed.wire.tensors import weights_digest
from tests.faults.fleet_processes import FLEET, fleet
from tests.faults.traffic_recorder import Spy

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]


def recipe() -> Recipe:
    return Recipe.model_validate(
        {
            "name": "stopping",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [16]},
            "data": {"partition": "classes", "classes_per_device": 4, "limit": 300},
            "training": {"batch_size": 8, "learning_rate": 0.05},
            "rounds": {
                "count": 9,
                "checkpoint_every": 2,
                "lost_grace": "deadline",
                "quorum": 1.0,
                "min_devices": 3,
            },
            "evaluation": {"best_metric": "loss", "stop_patience": 3, "stop_min_change": 10},
            "simulation": {"devices": 3},
        }
    )


def models(folder: Path) -> dict[str, str]:
    """Return the digests of a run's models by file."""
    names = [*folder.glob("[bm]*.safetensors"), *folder.glob("checkpoints/*.safetensors")]
    return {path.name: weights_digest(load_file(path)) for path in names}


def ending(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[key] for key in ("status", "reason", "round", "weights_digest"))


def test_a_killed_coordinator_stops_after_the_same_round_as_a_simulation(tmp_path: Path) -> None:
    plan = recipe()
    with fleet(tmp_path / "home", plan) as home:
        spy = Spy(home.address, FLEET)
        try:
            run = home.begin()
            for number in (2, 4):
                spy.at(number, "training", "device-01", lambda: home.kill("coordinator"))
                home.start("coordinator")
            record = home.finish(run)
        finally:
            spy.close()
    virtual = Simulation(plan, tmp_path / "sim", SystemClock()).run()
    assert ending(record) == ending(vars(virtual.record))
    assert (record["status"], record["round"]) == ("finished", 4)
    assert record["reason"].startswith("stopped early: no better loss in 3 evaluations")
    kept = models(Path(record["folder"]))
    assert kept == models(virtual.folder)
    assert sorted(kept) == [
        "best.safetensors",
        "model.safetensors",
        "round-0002.safetensors",
        "round-0004.safetensors",
    ]
