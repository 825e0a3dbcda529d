"""Send each reply, and repeat it until the coordinator confirms it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgefed.wire.messages import Reply

REPEAT = 20.0
MAX_REPEAT = 120.0
"""Seconds until a reply is repeated for the first time, and at most between two repetitions."""

BUSY = 2.0
"""How many times the last receipt's seconds pass before the next reply is repeated: where a
coordinator with thousands of devices takes long, repeated replies would make it take longer."""


@dataclass
class _Unacknowledged:
    reply: Reply
    since: float
    due: float
    wait: float


class ReplyResender:
    """Replies that the coordinator has not acknowledged; owned by one thread.

    Args:
        send: publishes a reply.
    """

    def __init__(self, send: Callable[[Reply], None]) -> None:
        self._send = send
        self._wait = REPEAT
        self._unheard: dict[str, _Unacknowledged] = {}

    def put(self, reply: Reply, now: float) -> None:
        """Send a reply now, and again until it is confirmed."""
        due = now + self._wait
        self._unheard[reply.exchange] = _Unacknowledged(reply, now, due, self._wait)
        self._send(reply)

    def heard(self, exchange: str, now: float | None = None) -> bool:
        """Note that the coordinator has a reply, or no longer needs it; False when none waited.

        Args:
            exchange: of the reply.
            now: the monotonic second of its receipt; None if there was none.
        """
        unheard = self._unheard.pop(exchange, None)
        if unheard is not None and now is not None:
            self._wait = min(max(REPEAT, BUSY * (now - unheard.since)), MAX_REPEAT)
        return unheard is not None

    def keep(self, run: str) -> None:
        """Send the replies of one run only; the coordinator asks again when it takes up another."""
        for exchange, unheard in list(self._unheard.items()):
            if unheard.reply.run != run:
                del self._unheard[exchange]

    def due(self, now: float) -> None:
        """Repeat the replies that were not confirmed for long enough."""
        for unheard in self._unheard.values():
            if unheard.due <= now:
                unheard.wait = min(2 * unheard.wait, MAX_REPEAT)
                unheard.due = now + unheard.wait
                self._send(unheard.reply)

    def reconnected(self, now: float) -> None:
        """Send all replies again: those on their way may be lost with the broker."""
        for unheard in self._unheard.values():
            unheard.wait = self._wait
            unheard.since, unheard.due = now, now + self._wait
            self._send(unheard.reply)

    def next_due(self) -> float | None:
        """Return the monotonic second of the next repetition, or None."""
        return min((unheard.due for unheard in self._unheard.values()), default=None)
