"""Dashboards for snapshots: over a recording, a replay, past runs and recipe files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timezone
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input

from edgefed.cli.programs.run_launcher import RunLauncher
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.events.base.event_entries import EventFilter, EventPage
from edgefed.events.history.known_runs import RunDetails
from edgefed.events.history.recorded_events import recorded_page
from edgefed.events.history.recording import Recording
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.tui.app import Dashboard
from edgefed.tui.feeds.recorded_feed import RecordedFeed
from edgefed.tui.feeds.replay_feed import ReplayFeed
from edgefed.tui.panes.frame.event_log import EventLogPane
from edgefed.tui.screens.registry import Drawn, ScreenName
from edgefed.tui.state.closing import ENDS_REPLAY, WATCHES, Closing
from edgefed.tui.state.interfaces import Control, Events, Runs
from edgefed.tui.state.launching import Launcher
from tests.cli.programs.test_run_launcher import FILE, Coordinator
from tests.tui.driving import PATIENCE, Scenario, lay_out, settle, until
from tests.tui.recorded_fleet import record, recorded
from tests.tui.sample_runs import KnownRuns, past_run, prox
from tests.tui.samples import FakeClock, RecordingControl

LOG = tuple(
    f"2026-03-04 14:0{number // 20}:{number * 3 % 60:02d},{number:03d} {line}"
    for number, line in enumerate(
        (
            "INFO connected to the broker",
            "INFO round 12: training on 512 samples for 2 epochs",
            "INFO round 12: sent 1.1 MiB",
            "WARNING memory is at 87 %: the batch size is 16 instead of 32",
            "ERROR round 12: the update was rejected: norm 19.4 exceeds 10.0",
        )
        * 8
    )
)
"""The end of a device's log."""

CURRENT = past_run(142, 8.0, 12, status="running", algorithm="fedprox").model_copy(
    update={"rounds": 50}
)

PAST: tuple[RunDetails, ...] = (
    CURRENT,
    past_run(141),
    past_run(140, 2.0, name="line3-camera-defects", status="failed", round=7),
    past_run(139, 3.0, status="aborted", algorithm="fedma", round=3),
    prox(138, name="mu-0.01", epsilon=8.0),
    past_run(137, 6.0, 40, status="paused", round=31),
    past_run(136, history=[], accuracy=None, loss=None, round=0, status="failed", name=""),
    *(past_run(number, 2.0 + number % 5) for number in range(135, 95, -1)),
)
"""The runs of a coordinator, the newest first."""


_OPENING = ("enter", "n")
"""Keys after which the next one must wait."""


@dataclass(frozen=True)
class Screenshot:
    """A dashboard and how to reach the screen that is shown.

    Attributes:
        make: makes the dashboard; the current folder is empty and may be written to.
        keys: are pressed one after the other; what a key opens is waited for.
        then: happens after the keys.
        waits: whether something is still under way on the screen, and never ends.
    """

    make: Callable[[], Dashboard]
    keys: Sequence[str] = ()
    then: Scenario | None = None
    waits: bool = False

    async def reach(self, pilot: Pilot[None]) -> None:
        """Go to the screen."""
        await self._rest(pilot)
        for keys in _steps(self.keys):
            await pilot.press(*keys)
            await self._rest(pilot)
        if self.then is not None:
            await self.then(pilot)
            await self._rest(pilot)
        for field in pilot.app.screen.query(Input):
            field.cursor_blink = False

    async def _rest(self, pilot: Pilot[None]) -> None:
        await (pilot.pause() if self.waits else lay_out(pilot))


def _steps(keys: Sequence[str]) -> list[list[str]]:
    """Return keys in steps that end with a key that opens something."""
    steps: list[list[str]] = [[]]
    for key in keys:
        steps[-1].append(key)
        if key in _OPENING:
            steps.append([])
    return [step for step in steps if step]


class EndingFeed(RecordedFeed):
    """A feed of one update, which tells when the dashboard has closed."""

    def __init__(self, clock: FakeClock, update: FeedUpdate, closed: threading.Event) -> None:
        super().__init__([(0.0, update)], clock, play=False)
        self._closed = closed

    def stop(self) -> None:
        super().stop()
        self._closed.set()


class Silence(KnownRuns):
    """Knows runs; what ``silent`` names is not answered before the dashboard closes."""

    def __init__(self, *silent: str) -> None:
        super().__init__(*PAST)
        self.closed = threading.Event()
        self._silent = silent

    def wait(self, name: str) -> None:
        if name in self._silent:
            self.closed.wait(PATIENCE)

    def list_runs(self) -> Sequence[RunDetails]:
        self.wait("list_runs")
        return self.runs

    def run_details(self, run: str) -> RunDetails:
        self.wait("run_details")
        return super().run_details(run)

    def ask(self, action: str, /, **arguments: Any) -> Any:
        """Answer as a coordinator."""
        self.wait(action)
        return Coordinator().ask(action, **arguments)

    def log(self, device: str) -> tuple[str, ...]:
        """Answer as a device."""
        self.wait("log")
        return LOG


class LoggingControl(RecordingControl):
    """Every device answers with the same log."""

    def __init__(self, lines: tuple[str, ...] = LOG, error: Exception | None = None) -> None:
        super().__init__(error)
        self._lines = lines

    def log(self, device: str) -> tuple[str, ...]:
        super().log(device)
        return self._lines


def showing(
    update: FeedUpdate,
    screen: ScreenName = "overview",
    *,
    control: Control | None = None,
    runs: Runs | None = None,
    launcher: Launcher | None = None,
    closing: Closing = WATCHES,
    closed: threading.Event | None = None,
    events: Events | None = None,
) -> Dashboard:
    """Return a dashboard over one update."""
    clock = FakeClock()
    feed = EndingFeed(clock, update, closed or threading.Event())
    return Dashboard(
        feed, control or LoggingControl(), clock, zone=timezone.utc, screen=screen,
        runs=runs or KnownRuns(*PAST), launcher=launcher or recipes(), closing=closing,
        events=events,
    )  # fmt: skip


def of_recording(name: str, screen: ScreenName, **settings: Any) -> Dashboard:
    """Return a dashboard over the end of a recording."""
    return showing(recorded(name), screen, **settings)


class RecordedEvents:
    """The event log of a recording, which is written into the current folder."""

    def __init__(self, name: str) -> None:
        self._recording = Recording.read(record(Path(f"{name}.jsonl"), name))

    def event_page(
        self, wanted: EventFilter, *, before: int | None = None, after: int | None = None
    ) -> EventPage:
        """Return a page of all events."""
        done = len(self._recording)
        return recorded_page(self._recording, done, wanted, before=before, after=after)


async def read_events(pilot: Pilot[None]) -> None:
    """Wait until the screen of events has read what it needs."""
    await until(pilot, lambda: not pilot.app.screen.query_one(EventLogPane).reading)
    await settle(pilot)


def recipes(coordinator: Any = None, *, written: bool = True) -> RunLauncher:
    """Return who starts runs, in the current folder with or without recipe files.

    The folder has no absolute path: that of a test is another one each time.
    """
    folder = Path()
    if written:
        (folder / "line3.toml").write_text(FILE)
        (folder / "nightly.toml").write_text("")
    return RunLauncher(coordinator or Coordinator(), Surroundings({"HOME": "."}, folder))


class Replayed:
    """A replay of the recording of 40 boards, or of a file."""

    def __init__(self, path: Path | None = None) -> None:
        path = path or record(Path("events.jsonl"))
        clock = FakeClock()
        self.feed = ReplayFeed(Recording.read(path), clock, "plant-a", play=False)
        self.app = Dashboard(
            self.feed, None, clock, zone=timezone.utc, closing=ENDS_REPLAY, replay=self.feed,
            starting="The recording has not come to a run yet.", runs=KnownRuns(*PAST),
        )  # fmt: skip


async def follow(pilot: Pilot[None]) -> None:
    """Let a replay carry out the moves of keys."""
    dashboard = pilot.app
    assert isinstance(dashboard, Dashboard)
    feed = dashboard._feed
    assert isinstance(feed, ReplayFeed)
    feed.deliver()


async def pass_time(pilot: Pilot[None], seconds: float = 1.0) -> None:
    """Let time pass, and draw the screen then."""
    dashboard = pilot.app
    assert isinstance(dashboard, Dashboard)
    assert isinstance(dashboard._time, FakeClock)
    dashboard._time.seconds += seconds
    if isinstance(dashboard.screen, Drawn):
        dashboard.screen.draw()
