"""The state that screens draw: the newest update, the fleet's time, and a frozen update."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo

from edgefed.events.base.snapshot import LineView, RunView, Snapshot
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import Clock
from edgefed.tui.keys.keymap import OWN_KEYS, Keymap
from edgefed.tui.look.text_format import moment, wall_time
from edgefed.tui.state.replay import Replay, ReplayPosition
from edgefed.tui.state.run_commands import OWN_COMMANDS, RunCommands
from edgefed.tui.state.telemetry_history import TelemetryHistory

NOTHING = FeedUpdate(snapshot=None, broker=True, coordinator=True)
"""The state before the first update."""


@dataclass(frozen=True)
class Shown:
    """One drawing of the screen.

    Attributes:
        update: the panes' data; older than ``latest`` while the display is frozen.
        latest: the newest update, for the banner.
        now: time of the fleet, which ages and deadlines are measured against.
        clock: time of this machine; in a replay that of the recording.
        waited: seconds since the dashboard was opened.
        zone: zone for times of day; None is this machine's.
        frozen_at: when the display was frozen, None when it is live.
        waiting: events since then.
        starting: text to show while there is no run, because one was just started.
        replay: position of the replay; None for a live fleet.
        telemetry: the devices' health over the last minutes.
        keys: labels of the keys of actions.
        commands: command lines about runs.
    """

    update: FeedUpdate
    latest: FeedUpdate
    now: datetime
    clock: datetime
    waited: float = 0.0
    zone: tzinfo | None = None
    frozen_at: datetime | None = None
    waiting: int = 0
    starting: str = ""
    replay: ReplayPosition | None = None
    telemetry: TelemetryHistory = field(default_factory=TelemetryHistory)
    keys: Keymap = OWN_KEYS
    commands: RunCommands = OWN_COMMANDS

    @property
    def snapshot(self) -> Snapshot | None:
        """The state of the fleet, None until the first one came."""
        return self.update.snapshot

    @property
    def run(self) -> RunView | None:
        """The run, None when there is none."""
        return self.snapshot.run if self.snapshot else None

    @property
    def broken(self) -> bool:
        """Whether the numbers may be old because a connection is lost."""
        update = self.update
        return bool(update.problem) or not (update.broker and update.coordinator)

    @property
    def cut_off(self) -> bool:
        """Whether broker or coordinator is away, so that the shown state may have changed."""
        return not (self.latest.broker and self.latest.coordinator)

    @property
    def as_of(self) -> str:
        """The time of day of the shown numbers."""
        since = moment(self.latest.since)
        known = moment(self.snapshot.time) if self.snapshot else None
        return wall_time(since or known, self.zone)

    @property
    def time_now(self) -> str:
        """The time of day of this machine; in a replay that of the recording."""
        return wall_time(self.clock, self.zone)

    def time_of(self, stamp: str, *, seconds: bool = True) -> str:
        """Return the time of day of an ISO 8601 stamp in the screen's zone."""
        return wall_time(moment(stamp), self.zone, seconds=seconds)

    def since(self, stamp: str) -> timedelta | None:
        """Return the age of a stamp of the fleet, None without one."""
        when = moment(stamp)
        return None if when is None else self.now - when


class DisplayState:
    """Holds the newest update and returns the state to draw.

    The clocks of two machines are never compared: the fleet's time is the time of the last event,
    carried forward by this machine's monotonic clock. That also makes a recording show the ages it
    had when it was made. A replay has a time of its own, which follows its speed and stops.
    """

    def __init__(
        self,
        clock: Clock,
        zone: tzinfo | None = None,
        starting: str = "",
        replay: Replay | None = None,
        keys: Keymap = OWN_KEYS,
        commands: RunCommands = OWN_COMMANDS,
    ) -> None:
        self.keys = keys
        self.commands = commands
        self._clock = clock
        self._zone = zone
        self._starting = starting
        self._replay = replay
        self._started = clock.monotonic()
        self._latest = NOTHING
        self._telemetry = TelemetryHistory()
        self._fleet_time: datetime | None = None
        self._fleet_time_at = 0.0
        self._frozen: Shown | None = None

    @property
    def latest(self) -> FeedUpdate:
        """The newest update, whether or not the display is frozen."""
        return self._latest

    @property
    def replayed(self) -> bool:
        """Whether this is a replay, in which no run is executed."""
        return self._replay is not None

    @property
    def frozen(self) -> bool:
        """Whether the display is frozen."""
        return self._frozen is not None

    def machine_time(self) -> datetime:
        """Return the time of this machine, in a replay too."""
        return self._clock.now()

    def take(self, update: FeedUpdate) -> None:
        """Keep ``update`` as the newest."""
        before, after = self._latest.snapshot, update.snapshot
        if after is not None and (before is None or before.time != after.time):
            self._fleet_time = moment(after.time)
            self._fleet_time_at = self._clock.monotonic()
            self._telemetry.take(after)
        self._latest = update

    def freeze(self) -> None:
        """Freeze the display; updates are still kept."""
        self._frozen = replace(self._live(), frozen_at=self._clock.now())

    def thaw(self) -> None:
        """Continue with the newest update."""
        self._frozen = None

    def shown(self) -> Shown:
        """Return the state to draw now."""
        if self._frozen is None:
            return self._live()
        waiting = _newer_lines(self._frozen.update.snapshot, self._latest.snapshot)
        return replace(self._frozen, latest=self._latest, clock=self._clock.now(), waiting=waiting)

    def _live(self) -> Shown:
        now, monotonic = self._clock.now(), self._clock.monotonic()
        fleet = now
        if self._fleet_time is not None:
            fleet = self._fleet_time + timedelta(seconds=monotonic - self._fleet_time_at)
        position = self._replay.position() if self._replay is not None else None
        if position is not None and position.time is not None:
            fleet = now = position.time
        return Shown(
            update=self._latest,
            latest=self._latest,
            now=fleet,
            clock=now,
            waited=monotonic - self._started,
            zone=self._zone,
            starting=self._starting,
            replay=position,
            telemetry=self._telemetry,
            keys=self.keys,
            commands=self.commands,
        )


def _newer_lines(old: Snapshot | None, new: Snapshot | None) -> int:
    """Return how many lines of ``new`` stand above the newest line of ``old``."""
    lines: tuple[LineView, ...] = new.lines if new else ()
    top = old.lines[0] if old and old.lines else None
    return lines.index(top) if top in lines else len(lines)
