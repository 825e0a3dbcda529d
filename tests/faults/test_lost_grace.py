"""SIGKILL at an agent that returns late or never: a round waits for a limited time only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet, wait_until
from tests.faults.traffic_recorder import Spy
from tests.forked_programs import run_module
from tests.processes import edgefed, outcome

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

VICTIM = "device-01"
HOURS = 7200.0
"""Seconds that no test waits for: who waits until then has failed."""


def recipe(grace: float, **rounds: object) -> Recipe:
    """Return three rounds on three devices, of which two suffice."""
    return Recipe.model_validate(
        {
            "name": "grace",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [300]},
            "data": {"classes_per_device": 4, "limit": 480},
            "training": {"epochs": 4, "batch_size": 8, "learning_rate": 0.05},
            "rounds": {
                "count": 3,
                "deadline": HOURS,
                "lost_grace": grace,
                "quorum": 0.6,
                "min_devices": 3,
                **rounds,
            },
            "evaluation": {"on": "both"},
            "simulation": {"devices": 3, "holdout": 0.0},
        }
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """The fleet of all tests."""
    with fleet(tmp_path_factory.mktemp("home"), recipe(2.0)) as made:
        yield made


def kill_in_round_one(home: FleetProcesses, plan: Recipe) -> str:
    """Start a run of all devices, kill the victim in round 1, and return the run's id."""
    spy = Spy(home.address, FLEET)
    try:
        if home.processes[VICTIM].poll() is not None:
            home.start(VICTIM)
        home.wait_for_devices(3)
        run = home.begin(plan)
        spy.at(1, "training", VICTIM, lambda: home.kill(VICTIM))
    finally:
        spy.close()
    return run


def command(home: FleetProcesses, *words: str) -> subprocess.Popen[str]:
    """Start a command of the operator's."""
    return edgefed(*operator(home), *words)


def operator(home: FleetProcesses) -> tuple[str, ...]:
    return ("--broker", str(home.address), "--fleet", FLEET)


def waiting_events(home: FleetProcesses, run: str) -> list[dict[str, Any]]:
    return [each["waiting"] for each in home.events(run, "exchange") if each.get("waiting")]


def waits_for_the_lost(home: FleetProcesses, run: str) -> None:
    """Wait until the quorum is met and only the victim is out."""

    def told() -> bool:
        only = {"lost": [VICTIM], "online": [], "more": 0}
        return any(only.items() <= each.items() for each in waiting_events(home, run))

    wait_until(told, "word of the lost device", home.logs)


def test_a_run_goes_on_and_ends_without_a_device_that_stays_lost(home: FleetProcesses) -> None:
    run = kill_in_round_one(home, recipe(2.0))
    record = home.finish(run)
    texts = [note["text"] for note in home.events(run, "note")]
    assert (record["status"], record["round"]) == ("finished", 3), record["reason"]
    assert [point["replies"] for point in record["history"]] == [2, 2, 2]
    assert f"round 1 continues without {VICTIM} (lost)" in texts


def test_an_order_to_finish_waits_no_longer_than_the_grace(home: FleetProcesses) -> None:
    run = kill_in_round_one(home, recipe(2.0, count=1000))
    home.order(run, "finish")
    record = home.finish(run)
    assert record["status"] == "finished", record["reason"]
    assert record["round"] == 1


def test_who_is_back_within_the_grace_changes_no_bit_and_is_named_meanwhile(
    home: FleetProcesses, tmp_path: Path
) -> None:
    chosen = recipe(HOURS / 2)
    alone = Simulation(chosen, tmp_path / "alone", SystemClock()).run().record
    run = kill_in_round_one(home, chosen)
    watching = command(home, "run", "watch", run)
    waits_for_the_lost(home, run)
    code, out, err = run_module("edgefed.cli.main", *operator(home), "status")
    assert (code, err) == (0, "")
    until = waiting_events(home, run)[-1]["until"][11:19]
    assert f"{VICTIM} (lost), until {until} UTC" in out
    assert watching.stderr is not None
    line = f"waiting for {VICTIM} (lost), until {until} UTC\n"
    assert line in iter(watching.stderr.readline, "")
    home.start(VICTIM)
    record = home.finish(run)
    assert outcome(watching)[0] == 0
    assert not [each for each in home.events(run, "note") if "goes on" in each["text"]]
    assert [point["replies"] for point in record["history"]] == [3, 3, 3]
    assert record["weights_digest"] == alone.weights_digest
