"""A line on a terminal that tells how far a long command is, and when it will end."""

from __future__ import annotations

from typing import TextIO

from edgefed.clock import Clock
from edgefed.units import clock_time

WIDTH = 24
"""Characters of the bar."""


class ProgressLine:
    """Draws a bar on a terminal; anywhere else it draws nothing.

    Args:
        stream: where it is drawn.
        total: how many steps there are.
        noun: what a step is, in the plural.
        clock: measures how long a step takes.
        quiet: draw nothing.
    """

    def __init__(
        self, stream: TextIO, total: int, noun: str, clock: Clock, *, quiet: bool = False
    ) -> None:
        self._stream = stream
        self._total = total
        self._noun = noun
        self._clock = clock
        self._began = clock.monotonic()
        self._is_shown = stream.isatty() and not quiet

    def show(self, done: int) -> None:
        """Draw how many steps are done."""
        if self._is_shown:
            self._write(f"\r\x1b[K{self.line(done)}")

    def clear(self) -> None:
        """Remove the line, so that something else can be printed."""
        if self._is_shown:
            self._write("\r\x1b[K")

    def line(self, done: int) -> str:
        """Return the bar, the numbers, and the time that the rest will take."""
        share = done / self._total if self._total else 1.0
        bar = ("#" * round(share * WIDTH)).ljust(WIDTH, ".")
        spent = self._clock.monotonic() - self._began
        rest = f"  {clock_time(spent / share - spent)} left" if share else ""
        return f"[{bar}] {done}/{self._total} {self._noun}{rest}"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
