"""Blobs between devices over a real broker: the simulator's bits, after SIGKILL of every part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.device_store import read_releases
from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet
from tests.faults.traffic_recorder import Moment, Spy
from tests.relaying import Combined, Relaying, installed

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

VICTIM = "device-01"
SIZE = 1_000_000
"""Bytes from each device to each other one: enough to be caught on their way."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """The fleet of all tests: every recipe deals out the same samples."""
    folder = tmp_path_factory.mktemp("home")
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        installed(folder / "site", monkeypatch),
        fleet(folder, recipe(Relaying, 16, 70_000)) as made,
    ):
        yield made


def recipe(kind: type[Relaying], hidden: int, size: int) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "relays",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [hidden]},
            "algorithm": {"name": kind.name, "size": size},
            "data": {"classes_per_device": 4, "limit": 300},
            "training": {"epochs": 2, "batch_size": 8, "learning_rate": 0.05},
            "rounds": {
                "count": 3,
                "deadline": 300,
                "lost_grace": "deadline",
                "quorum": 1.0,
                "min_devices": 3,
            },
            "wire": {"downlink": "bf16", "uplink": "int8"},
            "evaluation": {"on": "both"},
            "simulation": {"devices": 3, "holdout": 0.0},
        }
    )


def simulated(folder: Path, plan: Recipe) -> str:
    record = Simulation(plan, folder, SystemClock()).run().record
    assert record.status == "finished", record.reason
    return record.weights_digest


def left_behind(home: FleetProcesses) -> list[Path]:
    """Return markers of blobs between devices that the coordinator still has."""
    return list((home.folder / "state" / "coordinator" / FLEET / "relays").iterdir())


def checked(home: FleetProcesses, run: str) -> dict[str, Any]:
    record = home.finish(run)
    assert record["status"] == "finished", record["reason"]
    assert left_behind(home) == []
    for device in device_names(3):
        check_charged_once(home, run, device)
    return record


def check_charged_once(home: FleetProcesses, run: str, device: str) -> None:
    """Check that every blob to another device is in the ledger, and none of them twice."""
    releases = read_releases(home.folder / "state" / "agents" / FLEET / device, device)
    noted = [
        (each.entry["round"], each.entry["receiver"])
        for each in releases
        if each.entry["kind"] == "mixes" and each.run == run
    ]
    rounds = range(1, home.recipe.rounds.count + 1)
    others = [other for other in device_names(3) if other != device]
    assert len(noted) == len(set(noted))
    assert set(noted) >= {(number, other) for number in rounds for other in others}
    labels = [each for each in releases if each.entry["kind"] == "labels"]
    assert [each.exchange for each in labels] == [""], "noted once, however often it started"


def test_bytes_between_devices_end_in_the_simulators_bits(
    home: FleetProcesses, tmp_path: Path
) -> None:
    record = checked(home, home.begin())
    assert record["weights_digest"] == simulated(tmp_path / "sim", home.recipe)
    other = recipe(Relaying, 16, 70_001)
    assert record["weights_digest"] != simulated(tmp_path / "other", other)


PHASES: tuple[tuple[int, str, Moment], ...] = (
    (1, "pass", "upload"),
    (1, "fit", "broadcast"),
    (2, "pass", "asked"),
    (2, "fit", "training"),
    (2, "evaluate", "asked"),
    (3, "pass", "answered"),
    (3, "fit", "answered"),
)


WIDTHS = {"coordinator": 3000, VICTIM: 3001, "broker": 3002}
"""Hidden units by who is killed: no run finds the blobs of another one in a cache."""


@pytest.mark.parametrize("victim", WIDTHS)
def test_growing_models_two_weight_sets_and_relays_survive_sigkill_of_any_part(
    victim: str, home: FleetProcesses, tmp_path: Path
) -> None:
    plan = recipe(Combined, WIDTHS[victim], SIZE + WIDTHS[victim])
    killed = []
    spy = Spy(home.address, FLEET)
    try:
        run = home.begin(plan)
        for number, question, moment in PHASES:
            spy.at(number, moment, VICTIM, lambda: home.kill(victim), question=question)
            killed.append((number, question, moment))
            home.start(victim)
        record = checked(home, run)
    finally:
        spy.close()
    assert killed == list(PHASES)
    assert record["round"] == plan.rounds.count
    assert record["weights_digest"] == simulated(tmp_path / "sim", plan)
