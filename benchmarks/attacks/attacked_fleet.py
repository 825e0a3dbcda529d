"""A fleet over TLS whose rounds are timed, beside a busy process and then beside an attacker."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.attacks.attackers import BUSY, DEADLINES, JOINING, Target
from benchmarks.floods import recipe
from edgefed.config.recipes.recipe import Recipe
from edgefed.control.enrolment_client import Applicant, enroll
from edgefed.data.devices.shard_files import write_shard
from edgefed.errors import EdgeFedError
from edgefed.process.clock import SystemClock
from edgefed.trust.tokens import parse_token
from tests.enrolment.hub import FLEET, Hub, running_hub
from tests.faults.fleet_processes import dealt
from tests.programs.forked_programs import ForkedProgram

ATTACKER = "attacker"
"""Name of the device, and of the viewer, whose credentials the attacker has."""

FIRST = 2
"""Rounds before the attack begins; the ratio is over those after them."""

POLL = 0.1
LONGEST = 300.0
"""Seconds after which an attack ends, though the run has not."""

LIST_SECONDS = 2.0
"""Bound on ``edgefed device list``."""

RATIO = 2.0
"""Bound on the median round beside the attacker, in medians beside a busy process."""


ACCURACY = 0.02
"""Bound on what the final accuracy may differ from that of the run beside a busy process."""


@dataclass
class Timed:
    """What one run showed.

    Attributes:
        rounds: seconds of each round from the third on.
        lists: seconds of each ``edgefed device list`` meanwhile.
        failed_lists: how many of them ended with an error.
        finished: whether the run ended well, at the latest when the attacker was gone.
        digest: of its weights.
        accuracy: of its last round, on the coordinator's test images.
    """

    rounds: list[float] = field(default_factory=list)
    lists: list[float] = field(default_factory=list)
    failed_lists: int = 0
    finished: bool = False
    digest: str = ""
    accuracy: float = float("nan")


def measure(attack: str, agents: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Return an attack's row, measured on a fleet of its own."""
    plan = recipe(agents, rounds, DEADLINES.get(attack, 300.0))
    with running_hub(folder) as hub, _agents(hub, plan) as target:
        before = _timed(hub, plan, BUSY, target)
        after = _timed(hub, plan, attack, target)
        told = list(hub.broker_told)
    ratio = _median(after.rounds) / _median(before.rounds)
    slowest = max(after.lists, default=float("nan"))
    restarts = [line for line in told if "ended" in line]
    return {
        "attack": attack,
        "baseline_s": _median(before.rounds),
        "attacked_s": _median(after.rounds),
        "ratio": ratio,
        "baseline_list_s": max(before.lists, default=float("nan")),
        "list_s": slowest,
        "failed_lists": after.failed_lists,
        "finished": after.finished,
        "same_digest": after.digest == before.digest,
        "baseline_accuracy": before.accuracy,
        "accuracy": after.accuracy,
        "restarts": restarts,
        "ok": ratio <= RATIO
        and slowest <= LIST_SECONDS
        and not after.failed_lists
        and after.finished
        and abs(after.accuracy - before.accuracy) <= ACCURACY
        and not restarts,
    }


@contextmanager
def _agents(hub: Hub, plan: Recipe) -> Iterator[Target]:
    """Enrol and run the devices; yield what an attacker knows."""
    programs: list[ForkedProgram] = []
    try:
        for name, shard in dealt(plan).items():
            hub.enroll(name)
            path = hub.folder / f"{name}.npz"
            write_shard(path, shard)
            programs.append(hub.fork_agent(name, path)[0])
        hub.enroll(ATTACKER)
        token = parse_token(hub.invite(ATTACKER, role="viewer"))
        applicant = Applicant(token, "", ("viewer",), hub.device("viewer"))
        viewer = enroll(applicant, SystemClock(), print)
        while len(hub.ask("snapshot")["snapshot"]["devices"]) < len(programs):
            time.sleep(POLL)
        own = str(hub.credentials(ATTACKER))
        names = tuple(dealt(plan))
        yield Target(hub.port, FLEET, own, str(viewer.folder), names)
    finally:
        for each in programs:
            each.kill()
            each.wait()


def _timed(hub: Hub, plan: Recipe, attack: str, target: Target) -> Timed:
    """Run the recipe, with the attacker from its third round on, or as one of its devices."""
    timed = Timed()
    with ExitStack() as attacking:
        if attack in JOINING:
            attacking.enter_context(_attacker(hub, attack, target))
        run = hub.order("run.start", recipe=plan.model_dump(mode="json"))["run"]
        while _record(hub, run).get("round", 0) < FIRST:
            time.sleep(POLL)
        if attack not in JOINING:
            attacking.enter_context(_attacker(hub, attack, target))
        began = time.monotonic()
        while not _is_over(hub, run) and time.monotonic() - began < LONGEST:
            _list_devices(hub, timed)
    if attack != BUSY:  # long enough to see whether the fleet goes on without help
        _list_devices(hub, timed)
    while not _is_over(hub, run) and time.monotonic() - began < 2 * LONGEST:
        time.sleep(POLL)
    record = _record(hub, run)
    timed.finished = record.get("status") == "finished"
    timed.digest = str(record.get("weights_digest", ""))
    timed.accuracy = float(record.get("accuracy", "nan"))
    timed.rounds = [row["seconds"] for row in record.get("history", [])[FIRST:]]
    return timed


@contextmanager
def _attacker(hub: Hub, attack: str, target: Target) -> Iterator[None]:
    """Run an attacker; wait first until it is a device of the fleet, if it is to be one."""
    module = "benchmarks.attacks.attackers"
    process = subprocess.Popen([sys.executable, "-m", module, attack, target.text()])
    try:
        while attack in JOINING and process.poll() is None and not _has_joined(hub):
            time.sleep(POLL)
        yield
    finally:
        process.kill()
        process.wait()


def _has_joined(hub: Hub) -> bool:
    devices = hub.ask("snapshot")["snapshot"]["devices"]
    return any(each["device"] == ATTACKER and each["state"] != "lost" for each in devices)


def _record(hub: Hub, run: str) -> dict[str, Any]:
    """Return a run's row; empty when the coordinator does not answer."""
    try:
        return dict(hub.ask("run.show", run=run))
    except EdgeFedError:
        return {}


def _is_over(hub: Hub, run: str) -> bool:
    return _record(hub, run).get("status") in ("finished", "failed", "aborted")


def _list_devices(hub: Hub, timed: Timed) -> None:
    """Run ``edgefed device list`` as an operator does, and note how long it took."""
    began = time.monotonic()
    command = hub.start("device", "list")
    try:
        command.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        command.kill()
        command.communicate()
    timed.failed_lists += command.returncode != 0
    timed.lists.append(time.monotonic() - began)
    time.sleep(POLL)


def _median(seconds: list[float]) -> float:
    return statistics.median(seconds) if seconds else float("nan")
