"""Whether the terminal still has bytes to take, so that drawings wait and only the newest is sent.

Buffers of a link, those of ssh for instance, take far more than a slow link sends in a second.
Their contents are unknown to the sender, so the terminal is asked: it reports its cursor's position
when it has drawn all that came before the question.
"""

from __future__ import annotations

from collections.abc import Callable

QUESTION = "\x1b[6n"
"""Asks for the position of the cursor, which every terminal answers."""

ASK_AFTER = 512
"""Bytes after which the terminal is asked; after fewer, drawings never wait."""

PATIENCE = 5.0
"""Seconds after which an answer counts as lost, on a terminal that has answered before."""

FIRST_PATIENCE = 1.0
"""The same on a terminal that has not answered yet."""

_MOST_UNANSWERED = 2
"""Questions without any answer after which a terminal is not asked any more."""


class Backlog:
    """Bytes on their way to the terminal.

    Args:
        now: the monotonic time.
        writable: whether the operating system takes more bytes now.
    """

    def __init__(self, now: Callable[[], float], writable: Callable[[], bool]) -> None:
        self._now = now
        self._writable = writable
        self._unasked = 0
        self._asked_at: float | None = None
        self._answers = False
        self._unanswered = 0
        self.round_trip = 0.0
        """Seconds that the last answer took."""

    def busy(self) -> bool:
        """Return whether a drawing should wait."""
        return self.asked() or not self._writable()

    def asked(self) -> bool:
        """Return whether an answer is awaited."""
        if self._asked_at is None:
            return False
        if self._now() - self._asked_at < (PATIENCE if self._answers else FIRST_PATIENCE):
            return True
        self._asked_at = None
        self._unanswered += 1
        return False

    def sent(self, count: int) -> str:
        """Count bytes that are sent; return a question to send after them, or nothing."""
        self._unasked += count
        if self._unasked < ASK_AFTER or self._asked_at is not None:
            return ""
        if not self._answers and self._unanswered >= _MOST_UNANSWERED:
            return ""
        self._unasked = 0
        self._asked_at = self._now()
        return QUESTION

    def answered(self) -> None:
        """Note that the terminal has answered."""
        if self._asked_at is not None:
            self.round_trip = self._now() - self._asked_at
        self._asked_at = None
        self._answers, self._unanswered = True, 0
