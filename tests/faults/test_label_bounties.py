"""Label bounties over a real broker: what is mixed is drawn from private randomness."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe, SimulationSection
from edgefed.data.base.types import Shard
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FleetProcesses, fleet
from tests.programs.seeded_agent import from_seed

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

DEVICES = 3


def recipe(labels: dict[str, Any], **rounds: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "bounties",
            "seed": 5,
            "model": {"name": "mlp", "hidden": [16]},
            "data": {"classes_per_device": 1, "normalize": True},
            "training": {"batch_size": 32, "learning_rate": 0.05, "max_steps": 20},
            "rounds": {
                "count": 2,
                "deadline": 300,
                "lost_grace": "deadline",
                "quorum": 1.0,
                "min_devices": DEVICES,
                **rounds,
            },
            "labels": labels,
            "simulation": {"devices": DEVICES},
        }
    )


def simulated(folder: Path, plan: Recipe) -> str:
    def seeded(
        shards: Sequence[Shard], settings: SimulationSection, tell: Callable[[str], None]
    ) -> tuple[Executor, str]:
        return Sequential(shards, private_randomness=from_seed), ""

    record = Simulation(plan, folder, SystemClock(), executors=seeded).run().record
    assert record.status == "finished", record.reason
    return record.weights_digest


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """A fleet whose owners let mixes leave their devices, with randomness of its own."""
    plan = recipe({"count": 6, "mix_share": 1.0, "noise": "white", "noise_scale": 0.0})
    own = {"share_mixes": "true", "least_mix_noise": "0"}
    settings = dict.fromkeys(device_names(DEVICES), own)
    with fleet(tmp_path_factory.mktemp("home"), plan, settings=settings) as made:
        yield made


def test_only_injected_randomness_repeats_a_run(home: FleetProcesses, tmp_path: Path) -> None:
    record = home.finish(home.begin())
    assert record["status"] == "finished", record["reason"]
    assert record["weights_digest"] != simulated(tmp_path / "sim", home.recipe)
