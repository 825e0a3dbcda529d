"""The rounds of a run as a progress bar, for those that call ``simulate``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from edgefed.events.base.model import Event
from edgefed.process.clock import SystemClock
from edgefed.terminal.notebook_bar import NotebookBar, in_notebook
from edgefed.terminal.progress_bar import ProgressBar
from edgefed.terminal.units import score_of


@contextmanager
def round_bar(progress: bool | None, rounds: int) -> Iterator[Callable[[Event], None]]:
    """Yield a listener that draws the rounds of a run, or does nothing.

    Args:
        progress: False for no bar, None for one in notebooks only, True for one on a terminal too.
        rounds: of the run.
    """
    notebook = in_notebook()
    if progress is False or (progress is None and not notebook):
        yield lambda event: None
        return
    clock = SystemClock()
    bar = NotebookBar(clock) if notebook else ProgressBar(sys.stderr, clock)
    done, scores = 0, ""

    def listen(event: Event) -> None:
        nonlocal done, scores
        if event.kind == "scored":
            done, scores = event.fields["round"], score_of(event.fields)
        if event.kind in ("exchange", "scored"):
            bar.show("rounds", done, rounds, scores)

    try:
        yield listen
    finally:
        bar.clear()
