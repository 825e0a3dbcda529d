"""SIGKILL at every part in every phase: the run completes by itself with the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, fleet
from tests.faults.traffic_recorder import Moment, Spy

MOMENTS: tuple[Moment, ...] = ("broadcast", "training", "upload")
VICTIM = "device-01"

RECIPE = Recipe.model_validate(
    {
        "name": "faults",
        "seed": 7,
        "model": {"name": "mlp", "hidden": [1000, 1000]},
        "data": {"classes_per_device": 4, "limit": 480},
        "training": {"epochs": 4, "batch_size": 8, "learning_rate": 0.05},
        "rounds": {
            "count": 4,
            "deadline": 300,
            "lost_grace": "deadline",
            "quorum": 1.0,
            "min_devices": 3,
        },
        "wire": {"downlink": "bf16", "uplink": "int8"},
        "simulation": {"devices": 3},
    }
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest that the recipe ends in when nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    record = Simulation(RECIPE, folder, SystemClock()).run().record
    assert record.status == "finished"
    return record.weights_digest


@pytest.mark.slow
@pytest.mark.mosquitto
@pytest.mark.parametrize("victim", ["coordinator", VICTIM, "broker"])
def test_a_killed_part_comes_back_and_the_run_ends_in_the_same_bits(
    victim: str, tmp_path: Path, undisturbed: str
) -> None:
    killed = []
    with fleet(tmp_path / "home", RECIPE) as home:
        spy = Spy(home.address, FLEET)
        try:
            run = home.begin()
            for number, moment in enumerate(MOMENTS, start=1):
                spy.at(number, moment, VICTIM, lambda: home.kill(victim))
                killed.append(moment)
                home.start(victim)
            record = home.finish(run)
        finally:
            spy.close()
    assert killed == list(MOMENTS)
    assert record["status"] == "finished", record["reason"]
    assert record["round"] == RECIPE.rounds.count
    assert record["weights_digest"] == undisturbed
