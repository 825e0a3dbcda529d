"""Secure aggregation behind a Mosquitto with TLS: kills, and a coordinator that lies.

The coordinator that lies is a real one, whose exchanges ``lying_coordinator`` changes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.process.clock import SystemClock
from edgefed.simulator.local_fleet import LocalFleet, device_names
from edgefed.simulator.run import Simulation
from tests.faults.fleet_processes import FleetProcesses, fleet, wait_until
from tests.programs.lying_coordinator import VICTIM

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

KEYS, SHARES, FIT, LISTS, UNMASK = ORDER = (
    "secure_keys",
    "secure_shares",
    "fit",
    "secure_lists",
    "secure_unmask",
)
DEVICES = device_names(4)
LOST = "device-02"


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


def simulated(folder: Path, plan: Recipe, monkeypatch: pytest.MonkeyPatch, lost: str = "") -> str:
    """Return the digest of a simulation in which devices are lost when they shall train."""
    replies = LocalFleet.replies

    def without_lost(self: LocalFleet, exchange: OpenExchange, stop: Any) -> Iterator[Delivered]:
        for each in replies(self, exchange, stop):
            if each.reply.device != lost or exchange.name != "fit":
                yield each

    monkeypatch.setattr(LocalFleet, "replies", without_lost)
    record = Simulation(plan, folder, SystemClock()).run().record
    assert record.status == "finished", record.reason
    return record.weights_digest


def finished(home: FleetProcesses, run: str) -> dict[str, Any]:
    record = home.finish(run)
    assert record["status"] == "finished", record["reason"]
    return record


def replies(home: FleetProcesses, run: str, question: str, **wanted: Any) -> list[dict[str, Any]]:
    """Return the replies to one of a round's exchanges, as the coordinator noted them."""
    return home.events(run, "reply", question=question, **wanted)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetProcesses]:
    """Four devices with certificates, whose coordinator lies once it is told to."""
    differences = {"signed": True, "ruled": True, "coordinator": "tests.programs.lying_coordinator"}
    with fleet(tmp_path_factory.mktemp("four"), waiting(), **differences) as home:
        home.wait_for_devices(4)
        yield home


def waiting(*, secure: bool = True) -> Recipe:
    rounds: dict[str, Any] = {
        "count": 1,
        "quorum": 0.7,
        "lost_grace": "deadline",
        "cohort": 4,
        "retries": 1,
    }
    return recipe(4, secure=secure, **rounds)


def test_an_agent_killed_after_sharing_keys_leaves_the_plain_sum(
    four: FleetProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses of several are in ``tests/algorithms/secure``."""
    # They train for longer than it takes to kill one, and nobody waits for it afterwards.
    plan = recipe(4, epochs=30, count=1, lost_grace=1.0, quorum=0.7)
    run = four.begin(plan)
    wait_for_answers(four, run, SHARES, {LOST})
    four.kill(LOST)
    record = finished(four, run)
    four.start(LOST)
    shared = replies(four, run, SHARES, outcome="accepted")
    masked = replies(four, run, FIT, outcome="accepted")
    signed = replies(four, run, LISTS, outcome="accepted")
    told = [each["text"] for each in four.events(run, "note", level="info")]
    assert LOST in {each["device"] for each in shared}
    assert LOST not in {each["device"] for each in (*masked, *signed)}
    assert len(masked) == 3
    assert {(each["samples"], each["loss"]) for each in masked} == {(1, None)}
    assert "secure aggregation: summed the updates of 3 of 4 devices, the threshold is 3" in told
    plain = recipe(4, secure=False, epochs=30, count=1)
    digests = {
        record["weights_digest"],
        simulated(tmp_path / "plain", plan, monkeypatch, LOST),
        simulated(tmp_path / "secure", plain, monkeypatch, LOST),
    }
    assert len(digests) == 1


# -- parts that are killed ------------------------------------------------------------------------


@contextmanager
def stopped(home: FleetProcesses, device: str) -> Iterator[None]:
    """Keep a device from answering, so that an exchange is open until the block ends."""
    pid = home.processes[device].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def wait_for_answers(home: FleetProcesses, run: str, question: str, devices: set[str]) -> None:
    def are_there() -> bool:
        return {each["device"] for each in replies(home, run, question)} >= devices

    wait_until(are_there, f"answers of {sorted(devices)} to {question}", home.logs)


def ended_exchanges(home: FleetProcesses, run: str) -> int:
    return len({each["exchange"] for each in home.events(run, "exchange", phase="merge")})


def wait_for_pause(home: FleetProcesses, run: str, exchanges: int) -> None:
    """Wait until a run pauses, so many exchanges of which have ended."""

    def is_there() -> bool:
        ended = ended_exchanges(home, run) if exchanges else 0
        return home.record(run)["status"] == "paused" and ended == exchanges

    wait_until(is_there, f"a pause after {exchanges} exchanges", home.logs)


def end_exchange(home: FleetProcesses, run: str, exchanges: int) -> None:
    """Let a run end its open exchange, of which it pauses before or after it."""

    def is_there() -> bool:
        return home.record(run)["status"] in ("paused", "finished")

    wait_until(is_there, f"a pause in or after exchange {exchanges + 1}", home.logs)
    if home.record(run)["status"] == "paused" and ended_exchanges(home, run) == exchanges:
        home.order(run, "step")


def test_parts_killed_in_the_middle_of_any_exchange_come_back_to_the_same_bits(
    four: FleetProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = four.begin(waiting(), paused=True)
    for number, question in enumerate(ORDER):
        wait_for_pause(four, run, number)
        four.wait_for_devices(4)
        with stopped(four, "device-03"):
            four.order(run, "step")
            wait_for_answers(four, run, question, {*DEVICES} - {"device-03"})
            for victim in ("device-01", "coordinator"):
                four.kill(victim)
                four.start(victim)
            four.order(run, "pause")  # it comes back in the same exchange, and forgets the step
        end_exchange(four, run, number)
    record = finished(four, run)
    plain = waiting(secure=False)
    assert record["exchanges"] == len(ORDER)  # the round has not begun anew
    assert record["weights_digest"] == simulated(tmp_path / "plain", plain, monkeypatch)


# -- a coordinator that lies ----------------------------------------------------------------------


def tell_lie(home: FleetProcesses, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the coordinator of later runs tell a lie."""
    monkeypatch.setenv("LIE", lie)
    home.restart("coordinator")
    home.wait_for_devices(4)


def failed(home: FleetProcesses, run: str) -> None:
    """Check that a run has failed because its devices refuse."""
    record = home.finish(run)
    assert record["status"] == "failed", record
    assert "the quorum is 3" in record["reason"]


def test_keys_of_the_coordinator_are_not_taken_for_a_devices(
    four: FleetProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_lie(four, "swapped", monkeypatch)
    run = four.begin()
    failed(four, run)
    told = {each["device"]: each["reason"] for each in replies(four, run, SHARES)}
    accepted = four.events(run, "reply", outcome="accepted")
    others = f"the keys of {VICTIM} are not its own"
    assert set(told) == set(DEVICES)
    for device, reason in told.items():
        own = "its own keys are not among the cohort's keys"
        assert (own if device == VICTIM else others) in reason
    assert {each["question"] for each in accepted} == {KEYS}  # nobody shared or masked anything


def test_devices_that_are_asked_different_things_uncover_nothing(
    four: FleetProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the coordinator could compute otherwise is tried in ``benchmarks/attacks``."""
    monkeypatch.setenv("FOUND", str(tmp_path / "found.npz"))
    tell_lie(four, "grid", monkeypatch)
    run = four.begin()
    failed(four, run)
    refused = {each["device"]: each["reason"] for each in replies(four, run, UNMASK)}
    masked = replies(four, run, FIT, outcome="accepted")
    assert {each["device"] for each in masked} == {*DEVICES}
    assert set(refused) == {*DEVICES}
    assert all("the signatures of the list of" in each for each in refused.values()), refused
    assert not (tmp_path / "found.npz").exists()


def test_a_coordinator_that_asks_twice_with_different_cohorts_is_refused(
    four: FleetProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals of other questions are in ``tests/algorithms/interface``."""
    tell_lie(four, LISTS, monkeypatch)
    run = four.begin(paused=True)
    for _ in range(ORDER.index(LISTS) + 1):
        four.step(run)
    answered = {each["device"] for each in replies(four, run, LISTS, outcome="accepted")}
    # A device that was killed in between remembers what it has answered.
    four.restart("device-01")
    four.wait_for_devices(4)
    four.step(run)
    refused = {
        each["device"]: each["reason"]
        for each in replies(four, run, LISTS)
        if each["outcome"] != "accepted"
    }
    four.resume(run)
    failed(four, run)
    assert answered == {*DEVICES}
    assert set(refused) == {*DEVICES} - {VICTIM}
    signed = "in this secure session it has signed the list of the updates that are summed already"
    assert all(signed in reason for reason in refused.values()), refused
    assert not replies(four, run, UNMASK, outcome="accepted")
