"""A feed of given updates, for tests and pictures; and the final state of an event file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.history.playback import Playback
from edgefed.events.history.recording import Recording
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import Clock

PERIOD = 0.5
"""Seconds between two looks at the clock while playing, and between updates of a plain list."""

Timed = tuple[float, FeedUpdate]
"""Seconds after the start, and the update that is due then."""


class RecordedFeed:
    """Plays updates at their times on ``clock``.

    Args:
        timed: updates with rising times; they may be made while they are played.
        clock: source of the time.
        play: whether a thread plays them; without it only ``deliver`` does.
    """

    def __init__(self, timed: Iterable[Timed], clock: Clock, *, play: bool = True) -> None:
        self._pending: Iterator[Timed] = iter(timed)
        self._next: Timed | None = next(self._pending, None)
        self._clock = clock
        self._play = play
        self._started = 0.0
        self._listener: Callable[[FeedUpdate], None] | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, listener: Callable[[FeedUpdate], None]) -> None:
        """Deliver the due update at once, then continue by the clock."""
        self._listener = listener
        self._started = self._clock.monotonic()
        self.deliver()
        if self._play:
            self._thread = threading.Thread(target=self._run, name="recorded-feed", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop; the listener is not called after this returns."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        self._listener = None

    def deliver(self) -> None:
        """Pass the newest due update to the listener; nothing when there is none."""
        elapsed = self._clock.monotonic() - self._started
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


def last_of_events(path: Path, fleet: str = "") -> FeedUpdate:
    """Return the update after the last event of an event file.

    Raises:
        StorageError: the file cannot be read.
    """
    recording = Recording.read(path)
    playback = Playback(recording, fleet)
    playback.move(len(recording), len(recording))
    return _fine(playback.snapshot())


def read_events(path: Path) -> list[Event]:
    """Return the events of a file; lines that are not events of this version are left out.

    Raises:
        StorageError: the file cannot be read.
    """
    return [event for event in Recording.read(path).events() if event is not None]


def _fine(snapshot: Snapshot) -> FeedUpdate:
    return FeedUpdate(snapshot=snapshot, broker=True, coordinator=True)
