"""Log the messages that an agent did not take, at most once a minute."""

from __future__ import annotations

import logging
from collections.abc import Callable

from edgefed.transport.inbox import InboxCounts

log = logging.getLogger(__name__)

COMPLAIN_EVERY = 60.0
"""Seconds between two warnings."""

LOOK_EVERY = 0.2
"""Seconds between two looks at the counts."""


class OverflowReport:
    """Warns of messages that were dropped or not read; owned by one thread.

    Args:
        counts: returns the counts of the inbox so far.

    Attributes:
        dropped: messages that the inbox had no room for.
        refused: messages over their limit, by kind.
    """

    def __init__(self, counts: Callable[[], InboxCounts]) -> None:
        self.dropped = 0
        self.refused: dict[str, int] = {}
        self._counts = counts
        self._told: tuple[int, int] = (0, 0)
        self._next_look = self._next_complaint = float("-inf")

    def due(self, now: float) -> bool:
        """Check the counts, if it is time; return whether they have changed."""
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_EVERY
        counts = self._counts()
        seen = (counts.dropped, counts.refused)
        if seen == (self.dropped, self.refused):
            return False
        self.dropped, self.refused = seen
        if now >= self._next_complaint:
            self._next_complaint = now + COMPLAIN_EVERY
            self._complain()
        return True

    def _complain(self) -> None:
        dropped, refused = self._told
        if self.dropped > dropped:
            told = "messages dropped because they came too fast: %d; they are sent again"
            log.warning(told, self.dropped)
        if sum(self.refused.values()) > refused:
            told = "messages over the limits of this device were not read: %s"
            log.warning(told, ", ".join(f"{kind} {n}" for kind, n in self.refused.items()))
        self._told = self.dropped, sum(self.refused.values())
