"""A feed that replays a recording: a list of updates, or an ``events.jsonl``."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from edgefed.clock import Clock
from edgefed.errors import DataError, StorageError
from edgefed.events.feed_update import FeedUpdate
from edgefed.events.fold import SnapshotBuilder
from edgefed.events.model import Event
from edgefed.events.snapshot import Snapshot
from edgefed.tui.text_format import moment

PERIOD = 0.5
"""Seconds between two looks at the clock while playing, and between updates of a plain list."""

Timed = tuple[float, FeedUpdate]
"""Seconds after the start, and the update that is due then."""


class RecordedFeed:
    """Plays updates when their time has come on ``clock``.

    Args:
        timed: updates with rising times; they may be made while they are played.
        clock: where the time comes from.
        speed: how many recorded seconds pass in one.
        play: whether a thread plays them; without it only ``deliver`` does.
    """

    def __init__(
        self, timed: Iterable[Timed], clock: Clock, *, speed: float = 1.0, play: bool = True
    ) -> None:
        self._pending: Iterator[Timed] = iter(timed)
        self._next: Timed | None = next(self._pending, None)
        self._clock = clock
        self._speed = speed
        self._play = play
        self._started = 0.0
        self._listener: Callable[[FeedUpdate], None] | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, listener: Callable[[FeedUpdate], None]) -> None:
        """Deliver what is due at once, then go on as the clock does."""
        self._listener = listener
        self._started = self._clock.monotonic()
        self.deliver()
        if self._play:
            self._thread = threading.Thread(target=self._run, name="recorded-feed", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End; the listener is not called after this returns."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        self._listener = None

    def deliver(self) -> None:
        """Give the newest update that is due to the listener; nothing when there is none."""
        elapsed = (self._clock.monotonic() - self._started) * self._speed
        newest: FeedUpdate | None = None
        while self._next is not None and self._next[0] <= elapsed:
            newest = self._next[1]
            self._next = next(self._pending, None)
        if newest is not None and self._listener is not None:
            self._listener(newest)

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD) and self._next is not None:
            self.deliver()


def of_snapshots(snapshots: Sequence[Snapshot]) -> list[Timed]:
    """Return snapshots as updates without a problem, one each period."""
    return [(index * PERIOD, _fine(snapshot)) for index, snapshot in enumerate(snapshots)]


def of_events(path: Path, fleet: str = "") -> Iterator[Timed]:
    """Return the snapshots of an event log at the times of its events.

    Raises:
        StorageError: the file cannot be read.
        DataError: a line is not an event.
    """
    return _folded(read_events(path), fleet)


def last_of_events(path: Path, fleet: str = "") -> FeedUpdate:
    """Return the update after the last event of a log.

    Raises:
        StorageError, DataError: as ``of_events``.
    """
    builder = SnapshotBuilder(Snapshot(fleet=fleet))
    for event in read_events(path):
        problem = _applied(builder, event)
        if problem:
            return _broken(builder, event, problem)
    return _fine(builder.snapshot())


def read_events(path: Path) -> list[Event]:
    """Return the events of a log; a last line cut short by a crash is left out.

    Raises:
        StorageError: the file cannot be read.
        DataError: a line is not an event.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    whole = [line for line in lines if line.endswith("\n")]
    return [_event(path, number, line) for number, line in enumerate(whole, 1) if line.strip()]


def _event(path: Path, number: int, line: str) -> Event:
    try:
        return Event.from_flat(json.loads(line))
    except (
        *(ValueError, KeyError, TypeError, AttributeError, RecursionError),
        ValidationError,
    ) as error:
        raise DataError(
            f"Line {number} of {path} is not an event.",
            code="events.invalid",
            hint="use an unmodified events.jsonl, with one JSON object per line",
        ) from error


def _folded(events: Sequence[Event], fleet: str) -> Iterator[Timed]:
    """Yield a snapshot for each event; at one that cannot be folded, say so and end."""
    builder = SnapshotBuilder(Snapshot(fleet=fleet))
    first = moment(events[0].time) if events else None
    after = 0.0
    for event in events:
        now = moment(event.time)
        if first is not None and now is not None:
            after = max(after, (now - first).total_seconds())
        problem = _applied(builder, event)
        if problem:
            yield after, _broken(builder, event, problem)
            return
        yield after, _fine(builder.snapshot())


def _applied(builder: SnapshotBuilder, event: Event) -> str:
    """Fold an event in; return what is wrong with it, or nothing."""
    try:
        builder.apply(event)
    except (KeyError, TypeError, ValueError, AttributeError):
        return f"The recording has a broken {event.kind} event; it ends here."
    return ""


def _broken(builder: SnapshotBuilder, event: Event, problem: str) -> FeedUpdate:
    return FeedUpdate(builder.snapshot(), True, True, problem=problem, since=event.time)


def _fine(snapshot: Snapshot) -> FeedUpdate:
    return FeedUpdate(snapshot=snapshot, broker=True, coordinator=True)
