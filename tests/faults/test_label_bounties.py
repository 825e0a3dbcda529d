"""Label bounties over a real broker: its bits, and noise in place of lost mixes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from device_agent.tasks.device_store import read_releases
from edgefed.config.recipes.recipe import Recipe, SimulationSection
from edgefed.data.base.types import Shard
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import Executor, Sequential
from edgefed.simulator.local_fleet import device_names
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, FleetProcesses, begin_watched, fleet
from tests.faults.traffic_recorder import Spy
from tests.seeded_agent import from_seed

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

CLOSED = r"closed: ([\d,]+) of ([\d,]+) mixes are there, natural noise fills ([\d,]+)"
SEEDED = "tests.seeded_agent"
VICTIM = "device-01"


def recipe(devices: int, labels: dict[str, Any], **rounds: Any) -> Recipe:
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
                "min_devices": devices,
                **rounds,
            },
            "labels": labels,
            "simulation": {"devices": devices},
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


def sharing(devices: int) -> dict[str, dict[str, str]]:
    """Return settings of agents whose owners let mixes leave them."""
    own = {"share_mixes": "true", "least_mix_noise": "0"}
    return dict.fromkeys(device_names(devices), own)


def released(home: FleetProcesses, device: str) -> list[tuple[str, str, int]]:
    """Return exchange, receiver and number of mixes of each entry about mixes in a ledger."""
    found = read_releases(home.folder / "state" / "agents" / FLEET / device, device)
    return [
        (each.exchange, each.entry["receiver"], sum(each.entry["counts"].values()))
        for each in found
        if each.entry["kind"] == "mixes"
    ]


def notes(home: FleetProcesses, run: str) -> list[str]:
    return [event["text"] for event in home.events(run, "note")]


def test_ten_devices_with_a_class_each_end_in_the_simulators_bits(tmp_path: Path) -> None:
    plan = recipe(10, {"count": 11, "mix_share": 0.5, "noise": "white"})
    with fleet(tmp_path / "home", plan, agent=SEEDED, settings=sharing(10)) as home:
        run = home.begin()
        record = home.finish(run)
        assert record["status"] == "finished", record["reason"]
        told = notes(home, run)
        ledgers = {device: released(home, device) for device in device_names(10)}
    assert "10 devices lack labels: 90 bounties open" in told
    wanted = 90 * round(0.5 * 11)
    assert (
        f"90 label bounties closed: {wanted} of {wanted} mixes are there, natural noise fills "
        f"{90 * 11 - wanted}" in told
    )
    for device, entries in ledgers.items():
        assert {receiver for _, receiver, _ in entries} == set(ledgers) - {device}
        assert [mixes for _, _, mixes in entries] == [round(0.5 * 11)] * 9
    assert record["weights_digest"] == simulated(tmp_path / "sim", plan)


def test_only_injected_randomness_repeats_a_run(tmp_path: Path) -> None:
    plan = recipe(3, {"count": 6, "mix_share": 1.0, "noise": "white", "noise_scale": 0.0})
    with fleet(tmp_path / "home", plan, settings=sharing(3)) as home:
        record = home.finish(home.begin())
    assert record["status"] == "finished", record["reason"]
    assert record["weights_digest"] != simulated(tmp_path / "sim", plan)


def test_noise_completes_what_a_device_that_died_after_its_offer_owes(tmp_path: Path) -> None:
    plan = recipe(
        3,
        {"count": 60, "mix_share": 0.5, "noise": "white", "wait": 20},
        quorum=0.5,
        lost_grace=1.0,
        deadline=60,
    )
    with fleet(tmp_path / "home", plan, settings=sharing(3)) as home:
        spy = Spy(home.address, FLEET)
        try:
            run = begin_watched(home)
            spy.at(1, "answered", VICTIM, lambda: home.kill(VICTIM), question="label_offer")
            record = home.finish(run)
        finally:
            spy.close()
        assert record["status"] == "finished", record["reason"]
        told = notes(home, run)
    closed = [re.search(CLOSED, text) for text in told]
    numbers = [[int(n.replace(",", "")) for n in found.groups()] for found in closed if found]
    received, wanted, noise = map(sum, zip(*numbers, strict=True))
    assert wanted == 25 * 30, "all are closed but the two whose mixes wait for the lost device"
    assert received == 2 * 30, "the two others still exchange mixes"
    assert noise == 25 * 60 - received
