"""A feed that replays a recorded run: by the clock at a speed, step by step, or in jumps."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from datetime import datetime, timedelta, timezone

from edgefed.errors import StorageError
from edgefed.events.base.event_entries import EventFilter, EventPage
from edgefed.events.history.playback import Playback
from edgefed.events.history.recorded_events import recorded_page
from edgefed.events.history.recording import Recording
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import Clock
from edgefed.terminal.units import counted
from edgefed.tui.state.replay import SPEEDS, ReplayMove, ReplayPosition

TICK = 0.1
"""Seconds between two looks at the clock while it plays."""

CHUNK = 500
"""Events folded before the feed looks whether something else is wanted of it."""


class ReplayFeed:
    """Plays a recording; commands come from any thread and are carried out on the feed's own.

    Args:
        recording: to play.
        clock: source of the time.
        fleet: name of the fleet, which events do not have.
        speed: recorded seconds that pass in one; infinite for no waiting.
        first: number of events before the place where it begins.
        play: whether a thread plays it; without one only ``deliver`` does.
    """

    def __init__(
        self,
        recording: Recording,
        clock: Clock,
        fleet: str = "",
        *,
        speed: float = 1.0,
        first: int = 0,
        play: bool = True,
    ) -> None:
        self._recording = recording
        self._playback = Playback(recording, fleet)
        self._clock = clock
        self._threaded = play
        self._lock = threading.Lock()
        self._playing = True
        self._speed = speed
        self._at = 0.0  # seconds of the recording at the time ``_since``
        self._since = clock.monotonic()
        self._done = 0
        self._jump: int | None = first or None
        self._failure = ""
        self._listener: Callable[[FeedUpdate], None] | None = None
        self._news: tuple[object, ...] = ()
        self._stopped = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, listener: Callable[[FeedUpdate], None]) -> None:
        """Deliver the beginning at once, then continue by the clock."""
        self._listener = listener
        with self._lock:
            self._since = self._clock.monotonic()
        if self._threaded and self._jump is not None:
            self._wake.set()  # a jump may take long, and its thread makes it
        else:
            self.deliver()
        if self._threaded:
            self._thread = threading.Thread(target=self._run, name="replay-feed", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop; the listener is not called after this returns."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._listener = None

    @property
    def rounds(self) -> Collection[int]:
        """The numbers of the rounds to whose start it can go."""
        return self._recording.round_starts()

    def position(self) -> ReplayPosition:
        """Return the present position."""
        with self._lock:
            left_out = [self._recording.left_out.in_words()]
            if self._playback.refused:
                left_out.append(f"{counted(self._playback.refused, 'event')} that do not fit")
            return ReplayPosition(
                playing=self._playing and self._done < len(self._recording),
                speed=self._speed,
                done=self._done,
                total=len(self._recording),
                time=self._time(),
                left_out=", ".join(filter(None, left_out)),
            )

    def move(self, move: ReplayMove) -> None:
        """Change the position, the speed, or whether it plays."""
        with self._lock:
            self._at, self._since = self._seconds(), self._clock.monotonic()
            if move == "play":
                self._toggle()
            elif move in ("faster", "slower"):
                self._speed = _other_speed(self._speed, 1 if move == "faster" else -1)
            else:
                self._jump = self._target(move)
                self._playing = self._playing and move == "start"
        self._wake.set()

    def event_page(
        self, wanted: EventFilter, *, before: int | None = None, after: int | None = None
    ) -> EventPage:
        """Return a page of the events so far.

        Raises:
            StorageError: the recording cannot be read.
        """
        done = self._done
        return recorded_page(self._recording, done, wanted, before=before, after=after)

    def deliver(self) -> None:
        """Advance to the due position, and pass it to the listener."""
        there = False
        while not there and not self._stopped:
            with self._lock:
                jump, target = self._jump, self._due()
            there = self._moved(target)
            with self._lock:
                self._arrived(jump if there else None)
            self._tell()

    def _run(self) -> None:
        while not self._stopped:
            with self._lock:
                waits = self._playing and self._done < len(self._recording)
                pause = TICK / 5 if math.isinf(self._speed) else TICK
            self._wake.wait(pause if waits else None)
            self._wake.clear()
            self.deliver()

    def _moved(self, target: int) -> bool:
        """Fold one chunk towards an event; return whether it is reached."""
        try:
            return self._playback.move(target, CHUNK)
        except StorageError as error:
            self._failure = f"{error.message} Next step: {error.hint}."
            return True

    def _tell(self) -> None:
        with self._lock:
            news = (self._done, self._playing, self._speed, self._failure)
        if self._listener is None or self._stopped or news == self._news:
            return
        self._news = news
        self._listener(FeedUpdate(self._playback.snapshot(), True, True, problem=self._failure))

    # -- with the lock ----------------------------------------------------------------------------

    def _due(self) -> int:
        """Return how many events should have been folded by now."""
        if self._jump is not None:
            return self._jump
        if not self._playing:
            return self._done
        if math.isinf(self._speed):
            return min(len(self._recording), self._done + CHUNK)
        return max(self._done, bisect_right(self._recording.seconds, self._seconds()))

    def _arrived(self, jump: int | None) -> None:
        """Note where the playback is; after a jump, or without waiting, the clock goes on there."""
        self._done = self._playback.done
        if jump is not None or math.isinf(self._speed):
            self._at, self._since = self._seconds_of(self._done), self._clock.monotonic()
        if jump is not None and jump == self._jump:
            self._jump = None

    def _seconds(self) -> float:
        """Return the recording's seconds by the clock: never past the next event while it waits."""
        if not self._playing or math.isinf(self._speed):
            return self._at
        return self._at + (self._clock.monotonic() - self._since) * self._speed

    def _seconds_of(self, done: int) -> float:
        return self._recording.seconds[done - 1] if done else 0.0

    def _time(self) -> datetime | None:
        if not self._done:
            return None
        late = max(0.0, self._seconds() - self._seconds_of(self._done))
        if self._done < len(self._recording):
            late = min(late, self._seconds_of(self._done + 1) - self._seconds_of(self._done))
        else:
            late = 0.0
        stamp = datetime.fromtimestamp(self._recording.stamps[self._done - 1], timezone.utc)
        return stamp + timedelta(seconds=late)

    def _toggle(self) -> None:
        """Pause or play; at the end, play from the start."""
        if self._done >= len(self._recording) and self._jump is None:
            self._playing, self._jump = True, self._first()
        else:
            self._playing = not self._playing

    def _target(self, move: ReplayMove) -> int:
        """Return how many events a jump leads to, counted from where the last one leads."""
        if isinstance(move, int):
            return max(self._first(), self._recording.start_of_round(move))
        ends = self._recording.round_ends
        now = self._done if self._jump is None else self._jump
        total = len(self._recording)
        if move == "next_round":
            place = bisect_right(ends, now)
            return ends[place] if place < len(ends) else total
        if move == "previous_round":
            place = bisect_left(ends, now)
            return ends[place - 1] if place else self._first()
        if move in ("next_event", "previous_event"):
            wanted = now + (1 if move == "next_event" else -1)
            return max(min(1, total), min(total, wanted))
        return self._first() if move == "start" else total

    def _first(self) -> int:
        """Return how many events there are at the very beginning."""
        return bisect_right(self._recording.seconds, 0.0)


def _other_speed(speed: float, step: int) -> float:
    """Return the next higher or lower of the speeds, or the same at either end."""
    higher = [other for other in SPEEDS if other > speed]
    lower = [other for other in SPEEDS if other < speed]
    if step > 0:
        return higher[0] if higher else speed
    return lower[-1] if lower else speed
