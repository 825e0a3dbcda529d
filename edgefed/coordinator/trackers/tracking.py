"""Notify trackers of a run's progress; a failing tracker does not stop the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Row, TrackedRun, Tracker
from edgefed.errors import EdgeFedError


class Tracking:
    """The trackers of one run.

    A tracker that failed begins again at the next round and then gets all rounds; its failures are
    reported once.

    Args:
        trackers: the receivers.
        look: returns the run's current row in the store.
        warn: takes one line for people.
    """

    def __init__(
        self,
        trackers: Sequence[Tracker],
        look: Callable[[], TrackedRun],
        warn: Callable[[str], None],
    ) -> None:
        self._trackers = trackers
        self._look = look
        self._warn = warn
        self._ready: set[str] = set()
        self._warned: set[str] = set()

    def begin(self) -> None:
        """Begin the run in all trackers."""
        for tracker in self._trackers:
            self._take_up(tracker)

    def round(self, row: Row) -> None:
        """Pass on a round that the store already holds."""
        for tracker in self._trackers:
            if tracker.name in self._ready:
                self._do(tracker, partial(tracker.round, row))
            else:
                self._take_up(tracker)

    def end(self, record: RunRecord) -> None:
        """End the run in all trackers."""
        for tracker in self._trackers:
            if tracker.name in self._ready:
                self._do(tracker, partial(tracker.end, record))
        self._ready.clear()

    def _take_up(self, tracker: Tracker) -> None:
        self._ready.add(tracker.name)
        self._do(tracker, lambda: tracker.begin(self._look()))

    def _do(self, tracker: Tracker, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # what others' code raises is not known
            self._ready.discard(tracker.name)
            if tracker.name not in self._warned:
                self._warned.add(tracker.name)
                self._warn(f"tracker {tracker.name}: {_error_line(error)}")


def _error_line(error: Exception) -> str:
    if isinstance(error, EdgeFedError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    return f"{type(error).__name__}: {error}"
