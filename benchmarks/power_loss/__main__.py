"""Power losses at random moments: programs are SIGKILLed, started again, and nothing may be lost.

A fifth of the points falls on each activity: agents that train, a coordinator that commits rounds,
a board's update and roll-back, the swap of a model while a program reads the current one, and
backups and restores. The moments are uniform in the time that the activity takes without a kill.
After each kill the program goes on, and the end is compared with an undisturbed one. See
docs/chaos.md.

    python -m benchmarks.power_loss [--points 200] [--seed 0] [--activities NAME ...] [--json]
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.power_loss.fleet_kills import Kills
from benchmarks.power_loss.kills import Outcome
from benchmarks.power_loss.updates import kills_in_updates
from benchmarks.shared.harness import parser, show, table

ACTIVITIES = ("agent", "coordinator", "update", "model", "backup")


def measured(folder: Path, points: int, seed: int, activities: list[str]) -> list[Outcome]:
    """Return the outcomes of activities, each with so many points."""
    (folder / "fleet").mkdir()
    kills = Kills(folder / "fleet", random.Random(f"{seed} fleet"))
    works: dict[str, Callable[[int, Outcome], None]] = {
        "agent": kills.agents,
        "coordinator": kills.coordinator,
        "update": partial(_updates, folder / "boards", random.Random(f"{seed} boards")),
        "model": kills.models,
        "backup": kills.backups,
    }
    found = []
    try:
        for name in activities:
            outcome, began = Outcome(name), time.monotonic()
            with outcome.collecting():
                works[name](points, outcome)
            told = f"{outcome.points} points, {len(outcome.losses)} losses"
            seconds = time.monotonic() - began
            print(f"{name}: {told}, {seconds:.0f} s", file=sys.stderr, flush=True)
            found.append(outcome)
    finally:
        kills.close()
    return found


def _updates(folder: Path, rng: random.Random, points: int, outcome: Outcome) -> None:
    kills_in_updates(folder, points, rng, outcome)


def main() -> None:
    """Cut the power and print the losses."""
    options = parser("power_loss", __doc__, points=200, seed=0, activities=ACTIVITIES).parse_args()
    points = options.points // len(ACTIVITIES)
    with tempfile.TemporaryDirectory(prefix="power-loss-") as folder:
        found = measured(Path(folder), points, options.seed, options.activities)
    rows = [{**asdict(each), "losses": len(each.losses)} for each in found]
    lines = [f"! {each.activity}, {loss}" for each in found for loss in each.losses]
    show(options, [asdict(each) for each in found], "\n".join([table(rows), *lines]))
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
