"""The energy that a board takes for the work of a task."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.process.clock import Clock

LOOK_AGAIN = 60.0
"""Seconds after which a sensor is looked for again where there was none."""


class EnergyMeter:
    """Integrates the board's draw over the work of one task after another, without pauses.

    Between two readings the draw is taken to change evenly.

    Args:
        power: reads the draw in W; None without a sensor.
        clock: for the time between readings.
    """

    def __init__(self, power: Callable[[], float | None], clock: Clock) -> None:
        self._power = power
        self._clock = clock
        self._joules: float | None = None
        self._last: tuple[float, float] | None = None
        self._look_at = clock.monotonic()

    def begin(self) -> None:
        """Begin with another task; without a sensor nothing is measured until the next one."""
        self._joules, self._last = None, None
        if self._clock.monotonic() < self._look_at:
            return
        watts, now = self._power(), self._clock.monotonic()
        if watts is None:
            self._look_at = now + LOOK_AGAIN
        else:
            self._joules, self._last = 0.0, (now, watts)

    def read(self) -> None:
        """Read the draw while the task is at work; after a pause, this is where it goes on."""
        if self._joules is None or (watts := self._power()) is None:
            return
        now = self._clock.monotonic()
        if self._last is not None:
            since, before = self._last
            self._joules += (now - since) * (before + watts) / 2
        self._last = now, watts

    def pause(self) -> None:
        """End the work, for good or until ``read``."""
        if self._last is not None:
            self.read()
            self._last = None

    def end(self) -> float | None:
        """Return the J that the task took; None if they were not measured."""
        self.pause()
        return None if self._joules is None else round(self._joules, 3)
