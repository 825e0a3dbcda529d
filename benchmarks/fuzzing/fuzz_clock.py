"""A clock that moves with the inputs, so that what time brings happens and nobody waits."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)


class FuzzClock:
    """A clock that stops until it is moved."""

    def __init__(self) -> None:
        self._seconds = 1000.0

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self._seconds += seconds

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return self._seconds

    def now(self) -> datetime:
        """Return the time in UTC."""
        return BEGIN + timedelta(seconds=self._seconds)
