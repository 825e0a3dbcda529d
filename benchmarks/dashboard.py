"""What the dashboard costs: 200 boards that report twice a second, on the Devices screen.

Mosquitto, a coordinator and the dashboard, which is shown in a terminal of its own, are separate
processes. One board pauses every few seconds for a reason that is new each time; it stands at the
top of the table, and the time until the terminal is told this reason is the way of an event to its
cell. Of the dashboard's time and memory nothing else is counted.

    python -m benchmarks.dashboard [--devices 200] [--rate 2] [--seconds 60] [--screen 2] [--json]
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.fleets.boards import Boards, Working, boards
from benchmarks.fleets.loopback import FLEET, plain_fleet
from benchmarks.fleets.terminal import Terminal, dashboard
from benchmarks.shared.harness import parser, show

SETTLE = 8.0
"""Seconds before anything is counted."""

MARK_EVERY = 1.7
"""Seconds between two events whose way is timed; no multiple of the time between two drawings."""


class Marks:
    """When marks were sent, and how long they took to the terminal; safe from any thread.

    Attributes:
        took: seconds of each mark that was seen.
        bytes: of the terminal's output.
    """

    def __init__(self) -> None:
        self.took: list[float] = []
        self.bytes = 0
        self._sent: dict[bytes, float] = {}
        self._tail = b""
        self._lock = threading.Lock()

    def send(self, boards: Boards, number: int) -> None:
        """Let the first board pause for a reason that was not there before."""
        mark = f"mark {number:05d}"
        with self._lock:
            self._sent[mark.encode()] = time.monotonic()
        boards.complain(boards.names[0], mark)

    def look(self, output: bytes) -> None:
        """Note which marks are in the terminal's output."""
        now = time.monotonic()
        with self._lock:
            self.bytes += len(output)
            text = self._tail + output
            for mark in [mark for mark in self._sent if mark in text]:
                self.took.append(now - self._sent.pop(mark))
            self._tail = text[-32:]


def measure(devices: int, rate: float, seconds: float, screen: str) -> dict[str, Any]:
    """Return what the dashboard took, in shares of one core, seconds and MB."""
    marks = Marks()
    with (
        tempfile.TemporaryDirectory(prefix="dashboard-") as text,
        plain_fleet(Path(text), {}) as fleet,
        boards(fleet.address, FLEET, devices) as played,
        dashboard(fleet.address, FLEET, Path(text), size=(120, 36), on_output=marks.look) as shown,
    ):
        working = Working(played, rate)
        try:
            fleet.wait_for_devices(devices)
            shown.press(screen)
            found = _watched(shown, played, marks, seconds)
        finally:
            working.stop()
    return {"devices": devices, "rate": rate, "seconds": seconds, "screen": screen, **found}


def _watched(shown: Terminal, fleet: Boards, marks: Marks, seconds: float) -> dict[str, Any]:
    process = psutil.Process(shown.process.pid)
    time.sleep(SETTLE)
    megabytes: list[float] = []
    began, cpu, written = time.monotonic(), _cpu(process), marks.bytes
    number = 0
    while time.monotonic() - began < seconds:
        marks.send(fleet, number)
        number += 1
        time.sleep(MARK_EVERY)
        megabytes.append(process.memory_info().rss / 1e6)
    elapsed = time.monotonic() - began
    time.sleep(2.0)
    if not marks.took:
        raise RuntimeError("No event reached the screen.")
    third = max(1, len(megabytes) // 3)
    thirds = (megabytes[:third], megabytes[third:-third] or megabytes, megabytes[-third:])
    return {
        "core_share": (_cpu(process) - cpu) / (elapsed + 2.0),
        "event_to_cell_p50": statistics.median(marks.took),
        "event_to_cell_p95": statistics.quantiles([*marks.took, max(marks.took)], n=20)[-1],
        "marks": number,
        "marks_seen": len(marks.took),
        "bytes_per_second": (marks.bytes - written) / (elapsed + 2.0),
        "thirds_mb": [statistics.median(each) for each in thirds],
    }


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Measure and print."""
    command = parser("dashboard", __doc__, devices=200, seconds=60.0)
    command.add_argument("--rate", type=float, default=2.0, help="reports of a board in a second")
    command.add_argument("--screen", default="2", help="key of the screen")
    options = command.parse_args()
    found = measure(options.devices, options.rate, options.seconds, options.screen)
    show(options, found)


if __name__ == "__main__":
    main()
