"""Send each reply, and repeat it until the coordinator confirms it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgefed.wire.messages import Reply

REPEAT = 10.0
MAX_REPEAT = 120.0


@dataclass
class _Unacknowledged:
    reply: Reply
    due: float
    wait: float


class ReplyResender:
    """Replies that the coordinator has not acknowledged; owned by one thread.

    Args:
        send: publishes a reply.
    """

    def __init__(self, send: Callable[[Reply], None]) -> None:
        self._send = send
        self._unheard: dict[str, _Unacknowledged] = {}

    def put(self, reply: Reply, now: float) -> None:
        """Send a reply now, and again until it is confirmed."""
        self._unheard[reply.exchange] = _Unacknowledged(reply, now + REPEAT, REPEAT)
        self._send(reply)

    def heard(self, exchange: str) -> bool:
        """Note that the coordinator has a reply, or no longer needs it; False when none waited."""
        return self._unheard.pop(exchange, None) is not None

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
            unheard.wait = REPEAT
            unheard.due = now + REPEAT
            self._send(unheard.reply)

    def next_due(self) -> float | None:
        """Return the monotonic second of the next repetition, or None."""
        return min((unheard.due for unheard in self._unheard.values()), default=None)
