"""Detect another agent with the same name; the one that connected later stops."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from edgefed.wire.messages import Birth

NEWCOMER = 5.0
"""Seconds after its first connection in which an agent is the newcomer."""

STUBBORN = 3
"""Births after which another agent is no newcomer either."""

Reaction = Literal["ignore", "answer", "yield"]


class DuplicateNameGuard:
    """Judges births on our own topic; owned by one thread.

    A birth that is not ours is answered with ours, so a newcomer hears from who was there and
    yields. Of two newcomers, or of two old ones that a broken network kept apart, the one with the
    greater session yields. No clocks are compared, and a few messages settle it.

    Args:
        session: ours.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._since: float | None = None
        self._met: Counter[str] = Counter()

    def connected(self, now: float) -> None:
        """Note a connection at monotonic second ``now``."""
        self._since = now if self._since is None else self._since
        self._met.clear()

    def meet(self, birth: Birth, now: float, *, live: bool) -> Reaction:
        """Return what to do about a birth; a retained one may be of a life that is over."""
        if not live:
            return "ignore"
        if birth.status == "lost":
            return (
                "answer"  # the will of another life, or of another connection, replaced our birth
            )
        if birth.session == self._session:
            return "ignore"
        self._met[birth.session] += 1
        newcomer = self._since is None or now - self._since < NEWCOMER
        patience = 1 if newcomer else STUBBORN
        if newcomer and birth.session < self._session:
            return "yield"
        if self._met[birth.session] <= patience:
            return "answer"
        return "yield" if newcomer or birth.session < self._session else "answer"
