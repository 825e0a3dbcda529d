"""Events about messages that the coordinator did not take: dropped, or over a sender's limit."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.coordinator.rate_limited_notes import RateLimitedNotes
from edgefed.transport.inbox import InboxCounts

LOOK_EVERY = 0.2
"""Seconds between two looks at the counts."""

MOST_NAMED = 3
"""Senders that are named at a time."""


class OverflowNotes:
    """Warns of dropped and refused messages, once a minute; owned by one thread.

    Args:
        counts: returns the counts of the inbox so far.
        notes: takes the events.
    """

    def __init__(self, counts: Callable[[], InboxCounts], notes: RateLimitedNotes) -> None:
        self._counts = counts
        self._notes = notes
        self._dropped = 0
        self._refused: dict[str, int] = {}
        self._next_look = 0.0

    def due(self, now: float) -> None:
        """Look at the counts, if it is time."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY
        counts = self._counts()
        if counts.dropped > self._dropped:
            told = f"messages dropped because they came too fast: {counts.dropped}"
            if self._notes.warn("coordinator", "inbox", f"{told}; they are sent again"):
                self._dropped = counts.dropped
        for sender, refused in list(counts.refused.items())[:MOST_NAMED]:
            if refused > self._refused.get(sender, 0):
                told = f"messages over the limit of {sender} were not read: {refused}"
                if self._notes.warn("coordinator", f"flood of {sender}", told):
                    self._refused[sender] = refused
