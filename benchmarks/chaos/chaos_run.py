"""Run after run on a fleet that suffers a schedule of faults, each compared with a simulation."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from benchmarks.chaos.chaos_fleet import ChaosFleet, Means, store_of
from benchmarks.chaos.injection import Injector
from benchmarks.chaos.methods import DEVICES, recipe, settings, undisturbed
from benchmarks.chaos.schedule import Fault, Kind, schedule
from benchmarks.chaos.training_record import Trainings, trainings
from device_agent.tasks.device_store import read_releases
from edgefed.errors import EdgeFedError, UnreachableError

POLL = 0.5
STUCK = 240.0
"""Seconds without a new exchange after which a run is taken for stuck."""


@dataclass(frozen=True)
class Plan:
    """What is tried.

    Attributes:
        method: a name of ``methods.METHODS``.
        faults: how many.
        seed: of the schedule and of all runs.
        rounds: of each run.
        tls: whether connections use TLS and messages are signed.
    """

    method: str
    faults: int
    seed: int
    rounds: int
    tls: bool


@dataclass
class Outcome:
    """What became of it.

    Attributes:
        faults: how many of each kind.
        runs: how many ended.
        rounds: of all runs.
        seconds: of all runs.
        differing: runs that did not finish with the digest of their simulation, and how.
        trainings: of all devices.
        charged_twice: entries that a device's ledger holds more than once.
        exits: programs that ended with an error, and were started again.
        repeated_messages, reordered_messages: by links.
    """

    faults: dict[Kind, int] = field(default_factory=dict)
    runs: int = 0
    rounds: int = 0
    seconds: float = 0.0
    differing: list[str] = field(default_factory=list)
    trainings: Trainings = field(default_factory=Trainings)
    charged_twice: list[str] = field(default_factory=list)
    exits: list[str] = field(default_factory=list)
    repeated_messages: int = 0
    reordered_messages: int = 0

    @property
    def passed(self) -> bool:
        """Whether nothing was lost, nothing trained twice, and every digest is the same."""
        twice = self.trainings.twice or self.trainings.given_up or self.charged_twice
        return not (self.differing or twice)


def chaos(plan: Plan, folder: Path, means: Means, tell: Callable[[str], None]) -> Outcome:
    """Do a plan's faults to a fleet that trains, and return what became of it.

    Raises:
        AssertionError: a run is stuck; the message holds the ends of all logs.
    """
    outcome = Outcome()
    first = recipe(plan.method, plan.seed, plan.rounds, 0)
    fleet = ChaosFleet(folder, first, settings(plan.method), means, plan.seed, tls=plan.tls)
    lacking = without(means)
    faults = schedule(plan.seed, plan.faults, fleet.devices_named, lacking)
    injector = Injector(fleet, faults, lambda fault: tell(said(fault)))
    try:
        while not outcome.runs or not injector.finished:
            _one_run(plan, fleet, injector, outcome, tell)
    finally:
        injector.stop()
        fleet.close()
    outcome.faults = dict(Counter(fault.kind for fault in injector.done))
    return outcome


def without(means: Means) -> list[Kind]:
    """Return the kinds of faults that this machine does not allow."""
    lacking: dict[Kind, bool] = {"disk": not means.disks, "clock": means.clocks is None}
    return [kind for kind, lacks in lacking.items() if lacks]


def said(fault: Fault) -> str:
    """Return a fault in words."""
    amount = f" {fault.amount:.6g}" if fault.amount else ""
    return f"{fault.kind}{amount} {fault.part} for {fault.seconds:.1f} s"


def _one_run(
    plan: Plan,
    fleet: ChaosFleet,
    injector: Injector,
    outcome: Outcome,
    tell: Callable[[str], None],
) -> None:
    recipe_now = recipe(plan.method, plan.seed, plan.rounds, outcome.runs)
    fleet.wait_for_devices(DEVICES)
    run = fleet.begin(recipe_now)
    began = time.monotonic()
    injector.go_on()
    record = _ended(fleet, run, injector, outcome, tell)
    outcome.seconds += time.monotonic() - began
    injector.pause()
    outcome.runs += 1
    outcome.rounds += record["round"]
    problem = _difference(record, recipe_now.rounds.count)
    if not problem:
        simulated = undisturbed(recipe_now, fleet.folder / f"simulated-{outcome.runs}")
        if record["weights_digest"] != simulated.weights_digest:
            problem = f"{record['weights_digest'][:12]} instead of {simulated.weights_digest[:12]}"
    if problem:
        outcome.differing.append(f"{run}: {problem}")
    _count(fleet, outcome)
    tell(f"run {outcome.runs}: {record['round']} rounds, {problem or 'the same digest'}")


def _ended(
    fleet: ChaosFleet,
    run: str,
    injector: Injector,
    outcome: Outcome,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Return a run's row once it has ended."""
    before, since = -1, time.monotonic()
    while True:
        injector.check()
        for part in injector.revive():
            outcome.exits.append(f"{part}: {last_line(fleet.folder / f'{part}.log')}")
            tell(f"ended by itself: {outcome.exits[-1]}")
        record = _looked_at(fleet, run)
        if record["status"] in ("finished", "failed", "aborted"):
            return record
        if record["exchanges"] != before:
            before, since = record["exchanges"], time.monotonic()
        elif time.monotonic() - since > STUCK:
            raise AssertionError(f"run {run} is stuck after exchange {before}\n{fleet.logs()}")
        time.sleep(POLL)


def _looked_at(fleet: ChaosFleet, run: str) -> dict[str, Any]:
    """Return a run's row; of a run that nobody can be asked about, only that."""
    try:
        return fleet.record_now(run)
    except EdgeFedError as error:
        if error.exit_code != UnreachableError.exit_code:
            raise
        return {"status": "unknown", "exchanges": -1}


def last_line(log: Path) -> str:
    """Return the last error in a log."""
    lines = [line for line in log.read_text().splitlines() if "error: " in line]
    return lines[-1] if lines else "nothing was said"


def _difference(record: dict[str, Any], rounds: int) -> str:
    """Return what a run lost; empty for nothing."""
    if record["status"] != "finished":
        return f"{record['status']}: {record['reason']}"
    if len(record["history"]) != rounds:
        return f"{len(record['history'])} rounds instead of {rounds}"
    short = [row["round"] for row in record["history"] if row["replies"] != DEVICES]
    return f"replies are missing in rounds {short}" if short else ""


def _count(fleet: ChaosFleet, outcome: Outcome) -> None:
    """Look at what the devices recorded so far."""
    found, outcome.charged_twice = [], []
    for device in fleet.devices_named:
        path = fleet.trainings(device)
        found.append(trainings(path.read_text().splitlines() if path.exists() else ()))
        releases = read_releases(store_of(fleet, device), device)
        entries = Counter((each.exchange, repr(each.entry)) for each in releases)
        outcome.charged_twice += [f"{device}: {e}" for (e, _), n in entries.items() if n > 1]
    outcome.trainings = reduce(Trainings.plus, found)
    outcome.repeated_messages = sum(link.repeated for link in fleet.links.values())
    outcome.reordered_messages = sum(link.reordered for link in fleet.links.values())
