"""The memory of coordinator, agent and dashboard while a fleet trains round after round over TLS.

Four agents, a coordinator, Mosquitto and the dashboard, which is shown in a terminal of its own,
are separate processes. Runs of 500 rounds follow each other, and resident memory is read every 10
seconds. Memory is flat where its median in the last third is that of the middle third.

    python -m benchmarks.flat_memory [--minutes 3] [--agents 4] [--json]
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.fleets.loopback import FLEET, Fleet, secured_fleet
from benchmarks.secure_rounds import recipe
from edgefed.errors import EdgeFedError

EVERY = 10.0
ROUNDS = 500


@contextmanager
def dashboard(fleet: Fleet) -> Iterator[subprocess.Popen[bytes]]:
    """Show the dashboard in a terminal whose output nobody looks at."""
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    folder = fleet.processes.folder
    words = ["--no-config", "--fleet", FLEET, "--state", str(folder), "ui", "--read-only"]
    kept = {key: text for key, text in os.environ.items() if not key.startswith("EDGEFED_")}
    shown = subprocess.Popen(
        [sys.executable, "-m", "edgefed.cli.main", *words],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        env={**kept, "TERM": "xterm-256color", "EDGEFED_BROKER": str(fleet.processes.address)},
    )
    os.close(its)
    threading.Thread(target=_drain, args=(mine,), daemon=True).start()
    try:
        yield shown
    finally:
        shown.kill()
        shown.wait()


def _drain(terminal: int) -> None:
    with suppress(OSError):  # the dashboard has ended
        while os.read(terminal, 65536):
            pass


class Memory:
    """Reads the resident memory of some processes, in MB, until it is stopped."""

    def __init__(self, pids: Mapping[str, int], every: float) -> None:
        self.samples: dict[str, list[float]] = {name: [] for name in pids}
        self.times: list[float] = []
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}
        self._every = every
        self._stopped = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            read = {name: each.memory_info().rss / 1e6 for name, each in self._processes.items()}
            self.times.append(time.monotonic() - self._began)
            for name, megabytes in read.items():
                self.samples[name].append(megabytes)
            told = ", ".join(f"{name} {megabytes:.1f} MB" for name, megabytes in read.items())
            print(f"{self.times[-1]:8.0f} s  {told}", file=sys.stderr, flush=True)


def figures(times: Sequence[float], samples: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """Return, for each process, the medians of the thirds and the slope of the last two of them."""
    third = len(times) // 3
    rows = []
    for name, read in samples.items():
        slope = statistics.linear_regression(times[third:], read[third:]).slope
        thirds = (read[:third], read[third : 2 * third], read[2 * third :])
        rows.append(
            {
                "name": name,
                "medians_mb": [statistics.median(each) for each in thirds],
                "most_mb": max(read),
                "mb_an_hour": 3600 * slope,
            }
        )
    return rows


def table(found: dict[str, Any]) -> str:
    """Return the figures for people."""
    lines = [f"{found['minutes']:g} minutes, {found['rounds']} rounds, {found['runs']} runs"]
    lines.append(f"{'MB':<14}{'1st third':>10}{'2nd':>8}{'3rd':>8}{'most':>8}{'an hour':>10}")
    for row in found["rows"]:
        medians = "".join(f"{each:>8.1f}" for each in row["medians_mb"])
        lines.append(
            f"{row['name']:<14}  {medians}{row['most_mb']:>8.1f}{row['mb_an_hour']:>+10.1f}"
        )
    return "\n".join(lines)


def measure(minutes: float, agents: int, every: float = EVERY) -> dict[str, Any]:
    """Let a fleet train for so long and return what its programs took."""
    plan = recipe(agents, ROUNDS)
    with (
        tempfile.TemporaryDirectory(prefix="flat-memory-") as text,
        secured_fleet(Path(text), plan) as fleet,
        dashboard(fleet) as shown,
    ):
        processes = fleet.processes
        assert processes.coordinator is not None
        first = next(iter(processes.agents))
        memory = Memory(
            {
                "coordinator": processes.coordinator.pid,
                "agent": processes.agents[first].pid,
                "dashboard": shown.pid,
            },
            every,
        )
        until, runs, rounds = time.monotonic() + 60 * minutes, 0, 0
        try:
            while time.monotonic() < until:
                record = fleet.run(plan, until)
                runs, rounds = runs + 1, rounds + record["round"]
        finally:
            memory.stop()
        if shown.poll() is not None:
            raise EdgeFedError("The dashboard ended.")
    rows = figures(memory.times, memory.samples)
    read = {"seconds": memory.times, "mb": memory.samples}
    return {"minutes": minutes, "runs": runs, "rounds": rounds, "rows": rows, "read": read}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.flat_memory", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--agents", type=int, default=4)
    parser.add_argument("--every", type=float, default=EVERY, help="seconds between two samples")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.minutes, arguments.agents, arguments.every)
    print(json.dumps(found) if arguments.json else table(found))


if __name__ == "__main__":
    main()
