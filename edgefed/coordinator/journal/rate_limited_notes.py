"""Warnings about a sender's messages in the journal, at most one of each kind per minute.

All unknown senders share one limit: they choose their names freely, and could fill the log.
"""

from __future__ import annotations

from collections.abc import Callable

from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.events.state.attention import STRANGERS
from edgefed.process.clock import Clock
from edgefed.transport.inbox import InboxCounts

WARN_EVERY = 60.0
"""Seconds between two warnings of one kind about one sender."""

MAX_KINDS = 1024
"""Kinds and senders that are remembered; others are not warned of until one is forgotten."""


class RateLimitedNotes:
    """Warns of invalid messages; owned by one thread.

    Args:
        journal: takes the notes.
        clock: for the interval.
        party: the sender of warnings about this process.
    """

    def __init__(self, journal: EventJournal, clock: Clock, party: str = "coordinator") -> None:
        self.party = party
        self._journal = journal
        self._clock = clock
        self._warned: dict[tuple[str, str], float] = {}
        self._next_look = 0.0

    def warn(self, sender: str, kind: str, text: str) -> bool:
        """Emit a warning, at most once a minute for each kind of a sender.

        Returns:
            Whether it was emitted.
        """
        now = self._clock.monotonic()
        if now - self._warned.get((sender, kind), -WARN_EVERY) < WARN_EVERY:
            return False
        if len(self._warned) >= MAX_KINDS and not self._forget_old(now):
            return False  # the sender of a flood chooses the names
        self._warned[sender, kind] = now
        self._journal.emit("note", level="warning", text=f"{sender}: {text}")
        return True

    def warn_of_stranger(self, name: str, text: str) -> bool:
        """Emit a warning about an unknown sender's message, once a minute for all of them."""
        return self.warn(STRANGERS, STRANGERS, f"{name}: {text}")

    def _forget_old(self, now: float) -> bool:
        """Forget warnings that may be repeated, at most once a second; return if there is room."""
        if now >= self._next_look:
            self._next_look = now + 1.0
            recent = {key: at for key, at in self._warned.items() if now - at < WARN_EVERY}
            self._warned = recent
        return len(self._warned) < MAX_KINDS


LOOK_EVERY = 1.0
"""Seconds between two looks at the counts."""

MOST_NAMED = 3
"""Senders that are named at a time."""


class OverflowNotes:
    """Warns of dropped and refused messages, once a minute; owned by one thread.

    Args:
        counts: returns the counts of the inbox so far.
        notes: takes the events.

    Attributes:
        next_due: the monotonic second of the next look.
    """

    def __init__(self, counts: Callable[[], InboxCounts], notes: RateLimitedNotes) -> None:
        self._counts = counts
        self._notes = notes
        self._dropped = 0
        self._refused: dict[str, int] = {}
        self.next_due = 0.0

    def due(self, now: float) -> None:
        """Look at the counts, if it is time."""
        if now < self.next_due:
            return
        self.next_due = now + LOOK_EVERY
        counts = self._counts()
        if counts.dropped > self._dropped:
            warning = f"messages dropped because they came too fast: {counts.dropped}"
            if self._notes.warn(self._notes.party, "inbox", f"{warning}; they are sent again"):
                self._dropped = counts.dropped
        for sender, refused in list(counts.refused.items())[:MOST_NAMED]:
            if refused > self._refused.get(sender, 0):
                warning = f"messages over the limit of {sender} were not read: {refused}"
                if self._notes.warn(self._notes.party, f"flood of {sender}", warning):
                    self._refused[sender] = refused
