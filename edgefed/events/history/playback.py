"""The state of a fleet at any event of a recording: forwards by folding, back from a kept state."""

from __future__ import annotations

from edgefed.events.base.snapshot import Snapshot
from edgefed.events.history.recording import UNREADABLE, Recording
from edgefed.events.state.fold import SnapshotBuilder

KEPT = 64
"""States that are kept to go back to, however long the recording is."""

LEAST_STRIDE = 500
"""Events between two of them in a short recording."""


class Playback:
    """Folds a recording up to an event; not safe from several threads.

    Args:
        recording: the events.
        fleet: name of the fleet, which events do not have.

    Attributes:
        done: how many events have been folded.
    """

    def __init__(self, recording: Recording, fleet: str = "") -> None:
        self._recording = recording
        self._builder = SnapshotBuilder(Snapshot(fleet=fleet))
        self._stride = max(LEAST_STRIDE, -(-len(recording) // KEPT))
        self._kept = {0: self._builder.snapshot()}
        self._refused: set[int] = set()
        self.done = 0

    @property
    def refused(self) -> int:
        """Number of events so far that could not be folded; each left the state unchanged."""
        return len(self._refused)

    def snapshot(self) -> Snapshot:
        """Return the state after the events so far."""
        return self._builder.snapshot()

    def move(self, target: int, most: int) -> bool:
        """Go towards the state after ``target`` events, by folding ``most`` events at most.

        Returns:
            Whether it is reached.

        Raises:
            StorageError: the file can no longer be read.
        """
        if target < self.done:
            self._go_back(target)
        for event in self._recording.events(self.done, min(target, self.done + most)):
            try:
                if event is None:
                    raise ValueError("the file has changed")
                self._builder.apply(event)
            except UNREADABLE:
                self._refused.add(self.done)
            self.done += 1
            if self.done % self._stride == 0 and self.done not in self._kept:
                self._kept[self.done] = self._builder.snapshot()
        return self.done == target

    def _go_back(self, target: int) -> None:
        self.done = max(number for number in self._kept if number <= target)
        self._builder = SnapshotBuilder(self._kept[self.done])
