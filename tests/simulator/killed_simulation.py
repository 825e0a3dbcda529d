"""Run a small simulation that goes on after a kill: ``python -m``, method, seed, folder, event.

It is killed when it emits the event of this number, or not at all with 0; with -1, it fills the
disk of its folder after the third round, and is killed when it waits for space.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from edgefed.config.recipes.recipe import Recipe
from edgefed.events.base.model import Event
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation

METHODS: dict[str, dict[str, Any]] = {
    "feedback": {
        "wire": {"uplink": "int8", "downlink": "int8"},
        "evaluation": {"on": "both", "validation_share": 0.1},
    },
    "scaffold": {"algorithm": {"name": "scaffold"}, "rounds": {"cohort": 2}},
    "buffered": {
        "rounds": {
            "mode": "buffered",
            "buffer": 2,
            "concurrency": 3,
            "count": 15,
            "max_staleness": 1,
            "min_devices": 5,
        },
        "wire": {"uplink": "int8"},
        "selection": {"name": "oort"},
        "speeds": {
            "seconds_per_sample": 0.01,
            "uplink": 20_000,
            "downlink": 40_000,
            "spread": 1.0,
            "absent": 0.2,
            "absence": 2.0,
        },
        "evaluation": {"on": "devices", "every": 1},
    },
}

SMALL: dict[str, Any] = {
    "model": {"name": "mlp", "hidden": [6]},
    "data": {"limit": 100, "classes_per_device": 4},
    "rounds": {"count": 6},
    "simulation": {"devices": 5, "engine": "sequential", "holdout": 0.2},
}


SECONDS = {"seconds", "slowest", "slowest_seconds"}


def recipe(method: str, seed: int) -> Recipe:
    tables = {name: dict(table) for name, table in SMALL.items()}
    for name, table in METHODS[method].items():
        tables[name] = {**tables.get(name, {}), **table}
    return Recipe.model_validate({"seed": seed, **tables})


def outcome(method: str, seed: int, folder: Path, kill_at: int = 0, **how: Any) -> dict[str, Any]:
    """Run it to its end, and return all that must not depend on a kill."""
    simulation = Simulation(recipe(method, seed), folder, SystemClock(), **how)

    def hear(event: Event, number: int) -> None:
        if event.kind == "note":
            say(event.fields["text"])
        if kill_at < 0 and event.kind == "scored" and event.fields["round"] == 3:
            fill(folder.parent / "ballast")
        full = kill_at < 0 and "disk is full" in event.fields.get("reason", "")
        if full:
            say(event.fields["reason"])
        if full or number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    simulation.journal.listen(hear)
    ended = simulation.run()
    lines = (ended.folder / "metrics.jsonl").read_text().splitlines()
    timed = method == "buffered"  # else seconds are those of this machine
    return {
        "digest": ended.record.weights_digest,
        "bytes": [ended.record.bytes_up, ended.record.bytes_down],
        "seconds": round(ended.record.seconds, 9) if timed else 0,
        "rows": [
            {
                name: value
                for name, value in json.loads(line).items()
                if not name.startswith("system.") and (timed or name not in SECONDS)
            }
            for line in lines
        ],
    }


def fill(ballast: Path) -> None:
    """Take all the room of a disk."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def say(line: str) -> None:
    """Write a line at once, as nothing is flushed at a kill."""
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    given, seed, folder, event = sys.argv[1:]
    how: dict[str, Any] = {"goes_on": True, "checkpoint_seconds": 0}
    say(json.dumps(outcome(given, int(seed), Path(folder), int(event), **how)))
