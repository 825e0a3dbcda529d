"""The memory of coordinator, agent and dashboard while a fleet trains round after round over TLS.

Four agents, a coordinator, Mosquitto and the dashboard, which is shown in a terminal of its own,
are separate processes. Runs of 200 rounds follow each other, each with another seed, so that no
blob comes twice. Resident memory is read every 5 seconds. What a program needs for a run comes and
goes with it, so the least of each run counts (`benchmarks/fleets/memory_growth.py`).

    python -m benchmarks.flat_memory [--minutes 30] [--agents 4] [--json]
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from benchmarks.fleets.loopback import FLEET, secured_fleet
from benchmarks.fleets.memory_growth import growth
from benchmarks.fleets.terminal import dashboard
from benchmarks.secure_rounds import recipe
from benchmarks.shared.harness import parser, show, told
from edgefed.errors import EdgeFedError
from tests.faults.fleet_processes import dealt

EVERY = 5.0
ROUNDS = 200


class Memory:
    """Reads the resident memory of some processes, in MB, until it is stopped."""

    def __init__(self, processes: Mapping[str, psutil.Process], every: float) -> None:
        self.samples: dict[str, list[float]] = {name: [] for name in processes}
        self.times: list[float] = []
        self._processes = processes
        self._every = every
        self._stopped = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def now(self) -> float:
        """Return the seconds since the first sample was awaited."""
        return time.monotonic() - self._began

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            read = {name: each.memory_info().rss / 1e6 for name, each in self._processes.items()}
            self.times.append(self.now())
            for name, megabytes in read.items():
                self.samples[name].append(megabytes)
            told = ", ".join(f"{name} {megabytes:.1f} MB" for name, megabytes in read.items())
            print(f"{self.times[-1]:8.0f} s  {told}", file=sys.stderr, flush=True)


def measure(minutes: float, agents: int, every: float = EVERY) -> dict[str, Any]:
    """Let a fleet train for so long and return what its programs took."""
    plan = recipe(agents, ROUNDS)
    with (
        tempfile.TemporaryDirectory(prefix="flat-memory-") as text,
        secured_fleet(Path(text), dealt(plan)) as fleet,
        dashboard(fleet.address, FLEET, fleet.processes.folder) as shown,
    ):
        parts, first = fleet.parts(), next(iter(fleet.processes.agents))
        watched = {"coordinator": parts["coordinator"], "agent": parts[first]}
        watched["dashboard"] = psutil.Process(shown.process.pid)
        memory = Memory(watched, every)
        until, rounds = time.monotonic() + 60 * minutes, 0
        ends: list[tuple[float, int]] = []
        try:
            while time.monotonic() < until:
                record = fleet.run(plan.model_copy(update={"seed": len(ends)}), until)
                rounds += record["round"]
                ends.append((memory.now(), rounds))
        finally:
            memory.stop()
        if shown.process.poll() is not None:
            raise EdgeFedError("The dashboard ended.")
    rows = [
        {"name": name, **growth(memory.times, read, ends)} for name, read in memory.samples.items()
    ]
    read = {"seconds": memory.times, "mb": memory.samples, "runs": ends}
    return {"minutes": minutes, "runs": len(ends), "rounds": rounds, "rows": rows, "read": read}


def main() -> None:
    """Measure and print."""
    command = parser("flat_memory", __doc__, minutes=30.0, agents=4)
    command.add_argument("--every", type=float, default=EVERY, help="seconds between two samples")
    options = command.parse_args()
    found = measure(options.minutes, options.agents, options.every)
    shown = {key: value for key, value in found.items() if key != "read"}
    show(options, found, told(shown))
    if any(row["verdict"] == "grows" for row in found["rows"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
