"""A progress bar on a terminal: the share done, and the time left."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TextIO

from edgefed.process.clock import Clock
from edgefed.terminal.printable import printable
from edgefed.terminal.terminals import can_redraw
from edgefed.terminal.units import time_left

if TYPE_CHECKING:
    from rich.console import Console

BAR_WIDTH = 20
"""Characters of the bar."""

LEAST_SECONDS = 0.05
"""Seconds before the bar is drawn again, which costs more than many a step."""

START = "\r\x1b[K"
"""Goes to the start of the line and empties it."""

UNKNOWN = "? s"
"""The time left before the first step has ended."""


class ProgressBar:
    """Draws one line at the bottom of a terminal; on any other stream it draws nothing.

    The cursor stays visible, so that a killed program leaves the terminal as it was. Any thread may
    call the methods.

    Args:
        stream: of the terminal.
        clock: measures how long a step takes.
        quiet: draw nothing.
    """

    def __init__(self, stream: TextIO, clock: Clock, *, quiet: bool = False) -> None:
        self.is_shown = can_redraw(stream) and not quiet
        self._stream = stream
        self._clock = clock
        self._lock = threading.RLock()
        self._console: Console | None = None
        self._is_drawn = False
        self._drawn_at = 0.0
        self._pace = Pace("", 0, 0, 0.0)

    def show(self, what: str, done: float, total: int, note: str = "") -> None:
        """Draw the progress of an activity.

        Args:
            what: the activity, such as ``decoding images``.
            done: steps done, of which the last one may be a part.
            total: steps in all; 0 if unknown, which draws neither number nor time left.
            note: further text of the line.
        """
        if not self.is_shown:
            return
        with self._lock:
            now = self._clock.monotonic()
            if not self._pace.goes_on(what, done, total):
                self._pace = Pace(what, done, total, now)
            elif self._is_drawn and done < total and now - self._drawn_at < LEAST_SECONDS:
                return
            figures = "  ".join(
                filter(None, (_counted(done, total), self._pace.text(done, now), note))
            )
            self._write(f"{START}{self._line(what, done, total, figures)}")
            self._is_drawn, self._drawn_at = True, now

    def clear(self) -> None:
        """Remove the bar, so that something else can be printed; ``show`` draws it again."""
        with self._lock:
            if self._is_drawn:
                self._is_drawn = False
                self._write(START)

    def _line(self, what: str, done: float, total: int, figures: str) -> str:
        """Return the line, cut to the terminal's width, with the colours that it can show."""
        from rich.progress_bar import ProgressBar as Bar
        from rich.text import Text

        console = self._console = self._console or self._new_console()
        before, after = Text(printable(f"{what} ", "?")), Text(printable(f" {figures}", "?"))
        room = console.width - before.cell_len - BAR_WIDTH - 1
        after.truncate(max(0, room), overflow="ellipsis")
        with console.capture() as captured:
            console.print(before, end="", soft_wrap=True)
            if room >= 0:
                console.print(Bar(total or None, done, width=BAR_WIDTH), end="", soft_wrap=True)
            console.print(after, end="", soft_wrap=True)
        return captured.get()

    def _new_console(self) -> Console:
        from rich.console import Console

        return Console(file=self._stream, highlight=False)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Pace:
    """How fast steps are done, since one of them was first seen."""

    def __init__(self, what: str, done: float, total: int, now: float) -> None:
        self._what = what
        self._total = total
        self._first = self._done = done
        self._began = self._stepped = now

    def goes_on(self, what: str, done: float, total: int) -> bool:
        """Whether this is about the same steps."""
        return (self._what, self._total) == (what, total) and done >= self._done

    def text(self, done: float, now: float) -> str:
        """Return the time left in words; nothing if the number of steps is unknown."""
        left = self.left(done, now)
        shown = UNKNOWN if left is None else time_left(left)
        return f"{shown} left" if done < self._total else ""

    def left(self, done: float, now: float) -> float | None:
        """Return the seconds that the rest will take; None while no step has ended.

        A step that takes longer than the mean does not make the time left shorter.
        """
        if done > self._done:
            self._done, self._stepped = done, now
        ended = self._done - self._first
        if not ended or not self._total:
            return None
        mean = (self._stepped - self._began) / ended
        rest = mean * (self._total - self._done)
        return max(rest - (now - self._stepped), rest - mean, 0.0)


def _counted(done: float, total: int) -> str:
    return f"{int(done):,}/{total:,}" if total else ""
