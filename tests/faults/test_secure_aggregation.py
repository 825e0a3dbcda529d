"""Secure aggregation over a real broker: agents and coordinator killed, the plain run's bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgefed.clock import SystemClock
from edgefed.config.recipe import Recipe
from edgefed.coordinator.fleet import Delivered
from edgefed.coordinator.run_records import OpenExchange
from edgefed.simulator.local_fleet import LocalFleet
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet
from tests.faults.traffic_recorder import Moment, Spy

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

LOST = ("device-02", "device-07")


def recipe(devices: int, *, secure: bool = True, epochs: int = 1, **rounds: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "secure",
            "seed": 7,
            "model": {"name": "mlp", "hidden": [64]},
            "data": {"partition": "classes", "classes_per_device": 2, "limit": 400},
            "training": {"batch_size": 8, "learning_rate": 0.05, "epochs": epochs},
            "rounds": {"count": 2, "min_devices": devices, **rounds},
            "wire": {"uplink": "fp32"},
            "secure_aggregation": {"enabled": secure},
            "simulation": {"devices": devices, "workers": 1},
        }
    )


def simulated(
    folder: Path, plan: Recipe, monkeypatch: pytest.MonkeyPatch, lost: tuple[str, ...] = ()
) -> str:
    """Return the digest of a simulation in which devices are lost when they shall train."""
    replies = LocalFleet.replies

    def without_lost(self: LocalFleet, exchange: OpenExchange, stop: Any) -> Iterator[Delivered]:
        for each in replies(self, exchange, stop):
            if each.reply.device not in lost or exchange.name != "fit":
                yield each

    monkeypatch.setattr(LocalFleet, "replies", without_lost)
    record = Simulation(plan, folder, SystemClock()).run().record
    assert record.status == "finished", record.reason
    return record.weights_digest


def finished(home: FleetProcesses, run: str) -> dict[str, Any]:
    record = home.finish(run)
    assert record["status"] == "finished", record["reason"]
    return record


def test_two_of_ten_agents_killed_after_sharing_keys_leave_the_plain_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They train for longer than it takes to kill them, and nobody waits for them afterwards.
    plan = recipe(10, epochs=30, lost_grace=1.0, quorum=0.5)
    spy: Spy | None = None
    with fleet(tmp_path / "home", plan) as home:
        home.wait_for_devices(10)
        spy = Spy(home.address, FLEET)
        try:
            run = home.begin()

            def kill_both() -> None:
                for device in LOST:
                    home.kill(device)

            spy.at(1, "asked", "device-02", kill_both, question="fit")
            record = finished(home, run)
        finally:
            spy.close()
        shared = home.events(run, "reply", question="secure_shares", round=1, outcome="accepted")
        masked = home.events(run, "reply", question="fit", round=1, outcome="accepted")
        told = [each["text"] for each in home.events(run, "note", level="info")]
        details = {each.get("detail") for each in home.events(run, "exchange", round=1)}
    assert {each["device"] for each in shared} >= set(LOST)
    assert not {each["device"] for each in masked} & set(LOST)
    assert len(masked) == 8
    assert {(each["samples"], each["loss"]) for each in masked} == {(1, None)}
    assert "secure aggregation: summed the updates of 8 of 10 devices, the threshold is 7" in told
    assert {f"secure aggregation, {number} of 4" for number in (1, 2, 3, 4)} <= details
    plain = recipe(10, secure=False, epochs=30)
    digests = {
        record["weights_digest"],
        simulated(tmp_path / "plain", plain, monkeypatch, LOST),
        simulated(tmp_path / "secure", plan, monkeypatch, LOST),
    }
    assert len(digests) == 1


MOMENTS: tuple[tuple[str, Moment], ...] = (
    ("secure_keys", "asked"),
    ("secure_shares", "answered"),
    ("fit", "asked"),
    ("secure_unmask", "asked"),
)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """Three devices, all of which are waited for."""
    plan = recipe(3, count=len(MOMENTS), quorum=1.0, lost_grace="deadline", cohort=3)
    with fleet(tmp_path_factory.mktemp("three"), plan) as home:
        yield home


@pytest.mark.parametrize("victim", ["coordinator", "device-01"])
def test_a_part_killed_in_any_phase_comes_back_to_the_same_bits(
    victim: str, three: FleetProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = []
    spy = Spy(three.address, FLEET)
    try:
        run = three.begin()
        for number, (question, moment) in enumerate(MOMENTS, start=1):
            spy.at(number, moment, "device-01", lambda: three.kill(victim), question=question)
            killed.append(question)
            three.start(victim)
        record = finished(three, run)
    finally:
        spy.close()
    assert killed == [question for question, _ in MOMENTS]
    plain = recipe(3, secure=False, count=len(MOMENTS))
    assert record["weights_digest"] == simulated(tmp_path / "plain", plain, monkeypatch)
