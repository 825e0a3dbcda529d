"""Track the duration of a full disk, and the time of the next attempt to write."""

from __future__ import annotations

FIRST_WAIT = 1.0
LONGEST_WAIT = 30.0
"""Seconds between two tries, doubled from the first to the longest."""


class Shortage:
    """A lack of disk space; owned by one thread.

    Attributes:
        due: the monotonic second of the next try, or None.
    """

    def __init__(self) -> None:
        self.due: float | None = None
        self._wait = 0.0
        self._told = False

    def begin(self, now: float, freed: int) -> bool:
        """Note that the disk is full; return whether to report it.

        Args:
            now: monotonic second.
            freed: bytes that were deleted just now: then the next try is at once.
        """
        if freed:
            self.due = now
            return False
        if self.due is not None:  # something else met the same full disk
            return False
        self._wait = min(max(FIRST_WAIT, 2 * self._wait), LONGEST_WAIT)
        self.due = now + self._wait
        self._told = True
        return True

    def over(self, now: float) -> bool:
        """Return whether it is time to try again; True once for each time."""
        if self.due is None or now < self.due:
            return False
        self.due = None
        return True

    def end(self) -> bool:
        """Note that the writes succeeded; return whether the shortage had been reported."""
        told, self._told, self._wait = self._told, False, 0.0
        return told
