"""Limits on the messages that an agent reads, by kind, and the log's warnings of overflow.

All messages arrive on the device's own topics, which do not name the sender. Each kind therefore
has a bucket of its own: a flood of tasks delays neither chunks nor receipts. Tasks of the
coordinator's current run have another bucket than other tasks, which are rare: tests of earlier
runs' models.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from edgefed.process.clock import Clock
from edgefed.transport.inbox import InboxCounts, Incoming
from edgefed.transport.rate_limits import Rate, RefusalCounts, TokenBucket, cost_of
from edgefed.wire.topics import CHUNK_LEAF, Topics

RATES = {
    "task": Rate(100, 1000),
    "task of another run": Rate(1, 20),
    "receipt": Rate(200, 1000),
    "cancel": Rate(50, 500),
    "need": Rate(200, 1000),
    CHUNK_LEAF: Rate(4000, 65_536),
    "birth": Rate(10, 100),
    "renewal": Rate(1, 10),
    "certificate": Rate(1, 10),
    "leave": Rate(1, 10),
    "ping": Rate(5, 50),
    "log": Rate(2, 20),
    "model": Rate(1, 20),
    "update": Rate(1, 10),
    "coordinator": Rate(200, 1000),
}
"""By the last word of a topic; a message of 4 KiB or more counts as several, but a chunk as one.

They leave room for rounds of 50 ms with several exchanges.
"""

WORDS = {
    CHUNK_LEAF: "chunk",
    "coordinator": "state of the coordinator",
    "log": "request for the log",
    "model": "offer of a model",
    "update": "offer of an update",
}


class ArrivalLimits:
    """Decides which messages an agent reads; safe from any thread.

    Args:
        topics: of the fleet.
        clock: for the rates.
    """

    def __init__(self, topics: Topics, clock: Clock) -> None:
        now = clock.monotonic()
        self._prefix = f"{topics.root}/"
        self._run = b""
        self._clock = clock
        self._buckets = {leaf: TokenBucket(rate, now) for leaf, rate in RATES.items()}
        self._refused = RefusalCounts()
        self._lock = threading.Lock()

    def admit(self, message: Incoming) -> bool:
        """Return whether a message is to be read; others are counted for their kind."""
        leaf = self._leaf(message.topic)
        if leaf == "task" and self._run not in message.payload:
            leaf = "task of another run"
        with self._lock:
            bucket = self._buckets.get(leaf)
            if bucket is None:
                return False  # no topic of ours ends so
            cost = 1 if leaf == CHUNK_LEAF else cost_of(message.payload)
            if bucket.take(cost, self._clock.monotonic()):
                return True
            self._refused.add(WORDS.get(leaf, leaf))
            return False

    def know_run(self, run: str) -> None:
        """Note the coordinator's current run; empty for none."""
        self._run = run.encode()

    def refused(self) -> dict[str, int]:
        """Return how many messages were not read, by kind, the largest number first."""
        with self._lock:
            return self._refused.most()

    def _leaf(self, topic: str) -> str:
        """Return which kind of message a topic carries; empty for a topic that is not ours."""
        if not topic.startswith(self._prefix):
            return ""
        levels = topic[len(self._prefix) :].split("/", 3)
        depth = 1 if levels[0] == "all" else 2
        return levels[depth] if len(levels) > depth else ""


log = logging.getLogger(__name__)

COMPLAIN_EVERY = 60.0
"""Seconds between two warnings."""

LOOK_EVERY = 1.0
"""Seconds between two looks at the counts."""


class OverflowReport:
    """Warns of messages that were dropped or not read; owned by one thread.

    Args:
        counts: returns the counts of the inbox so far.

    Attributes:
        dropped: messages that the inbox had no room for.
        refused: messages over their limit, by kind.
        next_due: the monotonic second of the next look.
    """

    def __init__(self, counts: Callable[[], InboxCounts]) -> None:
        self.dropped = 0
        self.refused: dict[str, int] = {}
        self._counts = counts
        self._reported: tuple[int, int] = (0, 0)
        self.next_due = self._next_complaint = float("-inf")

    def due(self, now: float) -> bool:
        """Check the counts, if it is time; return whether they have changed."""
        if now < self.next_due:
            return False
        self.next_due = now + LOOK_EVERY
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
        dropped, refused = self._reported
        if self.dropped > dropped:
            message = "messages dropped because they came too fast: %d; they are sent again"
            log.warning(message, self.dropped)
        if sum(self.refused.values()) > refused:
            message = "messages over the limits of this device were not read: %s"
            log.warning(message, ", ".join(f"{kind} {n}" for kind, n in self.refused.items()))
        self._reported = self.dropped, sum(self.refused.values())
