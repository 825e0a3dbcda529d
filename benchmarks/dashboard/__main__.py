"""What the dashboard costs: processor time, bytes for its terminal, and seconds on a slow link.

Mosquitto, a coordinator and the dashboard, which is shown in a terminal of its own, are separate
processes. Of the dashboard's time and memory nothing else is counted. The parts:

- ``events``: 200 boards report twice a second, on the Devices screen. One board pauses every few
  seconds for a reason that is new each time; it stands at the top of the table, and the time until
  the terminal shows this reason is the way of an event to its cell.
- ``idle``: the same boards report only their health, every 10 seconds.
- ``run``: four agents train, round after round, on the Overview.
- ``keys``: the same over a link of 10 kB/s; a key opens Devices or the Overview, and the time until
  the terminal shows the whole screen counts.

    python -m benchmarks.dashboard [--parts events idle run keys] [--devices 200] [--rate 2]
        [--seconds 60] [--screen 2] [--silent] [--json]
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.fleets.boards import Boards, Working, boards
from benchmarks.fleets.loopback import FLEET, Fleet, plain_fleet
from benchmarks.fleets.terminal import Terminal, dashboard
from benchmarks.secure_rounds import recipe
from benchmarks.shared.harness import parser, show
from edgefed.config.recipes.recipe import Recipe
from tests.faults.fleet_processes import dealt

PARTS = ("events", "idle", "run", "keys")

SIZE = (120, 36)
"""Columns and lines of the terminal."""

SETTLE = 8.0
"""Seconds before anything is counted."""

MARK_EVERY = 1.7
"""Seconds between two events whose way is timed; no multiple of the time between two drawings."""

AGENTS = 4
ROUNDS = 100_000
"""Of the run; more than there is time for."""

SLOW = 10_000.0
"""Bytes in a second of the slow link."""

KEYS = 10
PAUSE = 2.0
"""How often a key is pressed on the slow link, and seconds before each time."""

SCREENS = {"2": ("Devices 4", "device-03 ", "m Map"), "1": ("Round ", "Events ─", "v All")}
"""Texts at both ends of a screen, by its key."""


class Marks:
    """When marks were sent, and how long they took to the terminal; safe from any thread.

    Attributes:
        took: seconds of each mark that was seen.
    """

    def __init__(self) -> None:
        self.took: list[float] = []
        self._sent: dict[str, float] = {}
        self._lock = threading.Lock()

    def send(self, boards: Boards, number: int) -> None:
        """Let the first board pause for a reason that was not there before."""
        mark = f"mark {number:05d}"
        with self._lock:
            self._sent[mark] = time.monotonic()
        boards.complain(boards.names[0], mark)

    def look(self, text: str) -> None:
        """Note which marks are on the screen."""
        now = time.monotonic()
        with self._lock:
            for mark in [mark for mark in self._sent if mark in text]:
                self.took.append(now - self._sent.pop(mark))


def events(devices: int, rate: float, seconds: float, screen: str) -> dict[str, Any]:
    """Return what the dashboard takes of boards at work, in shares of one core, seconds and MB."""
    marks = Marks()
    with _boards(devices, rate, screen, marks) as (shown, played):
        return _watched(shown, played, marks, seconds)


def idle(devices: int, seconds: float) -> dict[str, Any]:
    """Return the bytes that the Devices screen sends of boards that do nothing."""
    with _boards(devices, 0.0, "2") as (shown, _):
        return {f"{name}_idle": found for name, found in _spent(shown, seconds).items()}


@contextmanager
def _boards(
    devices: int, rate: float, screen: str, marks: Marks | None = None
) -> Iterator[tuple[Terminal, Boards]]:
    """Show a screen of the dashboard of boards that report."""
    on_change = None if marks is None else marks.look
    with (
        tempfile.TemporaryDirectory(prefix="dashboard-") as text,
        plain_fleet(Path(text), {}) as fleet,
        boards(fleet.address, FLEET, devices) as played,
        dashboard(fleet.address, FLEET, Path(text), size=SIZE, on_change=on_change) as shown,
    ):
        working = Working(played, rate)
        try:
            fleet.wait_for_devices(devices)
            shown.until("Quit")
            shown.press(screen)
            time.sleep(SETTLE)
            yield shown, played
        finally:
            working.stop()


def _watched(shown: Terminal, fleet: Boards, marks: Marks, seconds: float) -> dict[str, Any]:
    process = psutil.Process(shown.process.pid)
    megabytes: list[float] = []
    began, cpu, written = time.monotonic(), _cpu(process), shown.bytes
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
        "bytes_per_second": (shown.bytes - written) / (elapsed + 2.0),
        "thirds_mb": [statistics.median(each) for each in thirds],
    }


def _spent(shown: Terminal, seconds: float) -> dict[str, float]:
    """Return what the dashboard takes while nobody types."""
    process = psutil.Process(shown.process.pid)
    began, cpu, written = time.monotonic(), _cpu(process), shown.bytes
    time.sleep(seconds)
    elapsed = time.monotonic() - began
    return {
        "core_share": (_cpu(process) - cpu) / elapsed,
        "bytes_s": (shown.bytes - written) / elapsed,
    }


def run(fleet: Fleet, seconds: float) -> dict[str, float]:
    """Return the bytes that the Overview sends in a run."""
    with dashboard(fleet.address, FLEET, fleet.processes.folder, size=SIZE) as shown:
        shown.until(*SCREENS["1"])
        time.sleep(SETTLE)
        return {f"{name}_run": found for name, found in _spent(shown, seconds).items()}


def keys(fleet: Fleet, answers: bool) -> dict[str, float]:
    """Return how long keys take on a slow link, the median and the most."""
    slow = {"rate": SLOW, "answers": answers}
    with dashboard(fleet.address, FLEET, fleet.processes.folder, size=SIZE, **slow) as shown:
        first = shown.until(*SCREENS["1"], patience=300.0)
        time.sleep(SETTLE)
        took = []
        for number in range(KEYS):
            time.sleep(PAUSE)
            key = list(SCREENS)[number % len(SCREENS)]
            shown.press(key)
            took.append(shown.until(*SCREENS[key]))
        return {
            "first_screen_s_10kb": first,
            "key_s_10kb": statistics.median(took),
            "key_s_10kb_most": max(took),
        }


@contextmanager
def _training() -> Iterator[Fleet]:
    """Let agents train, round after round."""
    plan = Recipe.model_validate({**recipe(AGENTS, ROUNDS).model_dump(), "evaluation": {}})
    with (
        tempfile.TemporaryDirectory(prefix="dashboard-") as text,
        plain_fleet(Path(text), dealt(plan)) as fleet,
        fleet.client() as client,
    ):
        fleet.wait_for_devices(AGENTS)
        client.order("run.start", recipe=plan.model_dump(mode="json"))
        yield fleet


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Measure and print."""
    command = parser("dashboard", __doc__, devices=200, seconds=60.0, parts=PARTS)
    command.add_argument("--rate", type=float, default=2.0, help="reports of a board in a second")
    command.add_argument("--screen", default="2", help="key of the screen of the first part")
    command.add_argument("--silent", action="store_true", help="a slow terminal never answers")
    options = command.parse_args()
    found = {"devices": options.devices, "rate": options.rate, "seconds": options.seconds}
    if "events" in options.parts:
        found |= events(options.devices, options.rate, options.seconds, options.screen)
    if "idle" in options.parts:
        found |= idle(options.devices, options.seconds / 2)
    if {"run", "keys"}.intersection(options.parts):
        with _training() as fleet:
            if "run" in options.parts:
                found |= run(fleet, options.seconds / 2)
            if "keys" in options.parts:
                found |= keys(fleet, not options.silent)
    show(options, found)


if __name__ == "__main__":
    main()
