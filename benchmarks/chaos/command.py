"""Do the faults of a schedule to a fleet that trains, and print what became of its runs."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.chaos.chaos_fleet import Means
from benchmarks.chaos.chaos_run import Outcome, Plan, chaos, without
from benchmarks.chaos.methods import METHODS
from benchmarks.chaos.schedule import KINDS
from benchmarks.shared.harness import parser, show
from tests.faults.shifted_clock import ShiftedClocks, can_shift_clocks


def table(plan: Plan, outcome: Outcome) -> str:
    """Return an outcome for people."""
    trained = outcome.trainings
    kinds = [(str(kind), str(outcome.faults[kind])) for kind in KINDS if kind in outcome.faults]
    rows = [
        *kinds,
        ("faults", str(sum(outcome.faults.values()))),
        ("runs, rounds", f"{outcome.runs}, {outcome.rounds}"),
        ("seconds", f"{outcome.seconds:.0f}"),
        ("messages", f"{outcome.repeated_messages} repeated, {outcome.reordered_messages} late"),
        ("trainings", f"{trained.tasks}, {trained.repeated} again after a kill"),
        ("trained twice", f"{len(trained.twice) + trained.given_up}"),
        ("digests equal", f"{outcome.runs - len(outcome.differing)} of {outcome.runs}"),
    ]
    lines = [
        f"{plan.method}, seed {plan.seed}, {'TLS' if plan.tls else 'without TLS'}",
        *(f"  {name:<14}{value}" for name, value in rows),
    ]
    problems = [*outcome.differing, *trained.twice, *outcome.charged_twice]
    told = [f"  ended, started again: {each}" for each in outcome.exits]
    return "\n".join([*lines, *told, *(f"  ! {each}" for each in problems)])


def main(words: str | None, *, disks: bool) -> None:
    """Do the faults and print what became of the runs.

    Args:
        words: describe the command.
        disks: whether this process may mount disks which only it sees.
    """
    command = parser("chaos", words, faults=20, seed=1)
    command.add_argument("--algorithm", choices=METHODS, default="fedavg")
    command.add_argument("--rounds", type=int, default=12, help="rounds of each run")
    command.add_argument("--plain", action="store_true", help="without TLS and signatures")
    command.add_argument("--keep", type=Path, help="a new folder for all state and logs")
    options = command.parse_args()
    plan = Plan(options.algorithm, options.faults, options.seed, options.rounds, not options.plain)
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        outcome = run(plan, folder.absolute(), disks=disks)
    found = {**asdict(plan), **asdict(outcome), "passed": outcome.passed}
    show(options, found, table(plan, outcome))
    sys.exit(0 if outcome.passed else 1)


def run(plan: Plan, folder: Path, *, disks: bool) -> Outcome:
    """Do a plan in a folder, with all kinds of faults that this machine allows."""
    clocks = ShiftedClocks(folder) if can_shift_clocks() else None
    means = Means(disks=disks, clocks=clocks)
    for kind in without(means):
        print(
            f"no fault of this kind, for which the machine lacks the means: {kind}", file=sys.stderr
        )
    began = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - began:8.1f}  {what}", file=sys.stderr, flush=True)

    return chaos(plan, folder, means, tell)
