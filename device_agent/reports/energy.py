"""The energy that a board takes for the work of a task."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.process.clock import Clock


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

    def begin(self) -> None:
        """Begin with another task; without a sensor nothing is measured until the next one."""
        self._joules, self._last = None, None
        watts = self._power()
        if watts is not None:
            self._joules, self._last = 0.0, (self._clock.monotonic(), watts)

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
