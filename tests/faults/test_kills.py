"""SIGKILL at every part in every phase: the run completes by itself with the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet
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


WIDTHS = {"coordinator": 1000, VICTIM: 1001, "broker": 1002}
"""Hidden units by who is killed: no run finds the blobs of another one in a cache."""


def recipe(victim: str) -> Recipe:
    model = RECIPE.model.model_copy(update={"hidden": [1000, WIDTHS[victim]]})
    return RECIPE.model_copy(update={"model": model})


def undisturbed(plan: Recipe, folder: Path) -> str:
    """Return the digest that a recipe ends in when nothing happens."""
    record = Simulation(plan, folder, SystemClock()).run().record
    assert record.status == "finished"
    return record.weights_digest


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """The fleet of all cases: a run after another one, on parts that were killed before."""
    with fleet(tmp_path_factory.mktemp("home"), RECIPE) as made:
        yield made


@pytest.mark.slow
@pytest.mark.mosquitto
@pytest.mark.parametrize("victim", WIDTHS)
def test_a_killed_part_comes_back_and_the_run_ends_in_the_same_bits(
    victim: str, home: FleetProcesses, tmp_path: Path
) -> None:
    plan = recipe(victim)
    killed = []
    spy = Spy(home.address, FLEET)
    try:
        run = home.begin(plan)
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
    assert record["weights_digest"] == undisturbed(plan, tmp_path / "sim")
