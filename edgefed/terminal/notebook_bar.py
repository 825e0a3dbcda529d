"""A progress bar as the output of a notebook's cell: the share done, time passed and time left."""

from __future__ import annotations

import sys
from html import escape
from importlib import import_module
from typing import Any

from edgefed.process.clock import Clock
from edgefed.terminal.progress_bar import UNKNOWN, Pace
from edgefed.terminal.units import duration, time_left

WIDTH = 20
"""Characters of the bar where there is only text."""

LEAST_SECONDS = 0.2
"""Seconds before the bar is sent again."""


def in_notebook() -> bool:
    """Whether this process executes the cells of a notebook."""
    ipython = sys.modules.get("IPython")
    return "ipykernel" in sys.modules and ipython is not None and ipython.get_ipython() is not None


class NotebookBar:
    """Shows one line below the cell; it stays when the work is done.

    Args:
        clock: measures how long a step takes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pace: Pace | None = None
        self._output: Any = None
        self._began = self._shown_at = clock.monotonic()

    def show(self, what: str, done: int, total: int, note: str = "") -> None:
        """Show the progress of an activity; see ``ProgressBar.show``."""
        now = self._clock.monotonic()
        if self._pace is None:
            self._pace = Pace(what, done, total, now)
        left = self._pace.left(done, now)
        if self._output is not None and done < total and now - self._shown_at < LEAST_SECONDS:
            return
        shown = UNKNOWN if left is None else time_left(left)
        times = duration(now - self._began) + (f" < {shown}" if done < total else "")
        line = _Line(what, done, total, f"[{', '.join(filter(None, (times, note)))}]")
        if self._output is None:
            ipython: Any = import_module("IPython.display")
            self._output = ipython.display(line, display_id=True)
        else:
            self._output.update(line)
        self._shown_at = now

    def clear(self) -> None:
        """Do nothing: the bar stays."""


class _Line:
    """The bar at one moment, as the notebook shows it."""

    def __init__(self, what: str, done: int, total: int, figures: str) -> None:
        self._what, self._done, self._total, self._figures = what, done, total, figures

    def __repr__(self) -> str:
        full = WIDTH * self._done // self._total
        bar = "█" * full + " " * (WIDTH - full)
        share = 100 * self._done // self._total
        return f"{self._what} {share:3d}%|{bar}| {self._done}/{self._total} {self._figures}"

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self._done}" max="{self._total}"></progress>'
        text = f"{self._done}/{self._total} {self._figures}"
        return f"<div>{escape(self._what)} {bar} {escape(text)}</div>"
