"""Progress bars of ``simulate``, over rounds, and of ``sweep``, over runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgefed.events.base.model import Event
from edgefed.process.clock import SystemClock
from edgefed.terminal.notebook_bar import NotebookBar, in_notebook
from edgefed.terminal.progress_bar import ProgressBar
from edgefed.terminal.units import score_of

if TYPE_CHECKING:
    from edgefed.simulator.sweep.trials import TrialStep


@contextmanager
def round_bar(progress: bool | None, rounds: int) -> Iterator[Callable[[Event], None]]:
    """Yield a listener that draws the rounds of a run, or does nothing.

    Args:
        progress: False for no bar, None for one in notebooks only, True for one on a terminal too.
        rounds: of the run.
    """
    bar = _bar(progress)
    if bar is None:
        yield lambda event: None
        return
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


@contextmanager
def run_bar(
    progress: bool | None, report: Callable[[TrialStep], None]
) -> Iterator[Callable[[TrialStep], None]]:
    """Yield a listener that reports the steps of a sweep and draws its runs.

    Args:
        progress: see ``round_bar``.
        report: called with each step; its output stays above the bar.
    """
    bar = _bar(progress)
    if bar is None:
        yield report
        return
    ended = 0

    def listen(step: TrialStep) -> None:
        nonlocal ended
        bar.clear()
        report(step)
        ended += step.state in ("done", "known", "failed")
        names = f"{step.trial.case.name}, seed {step.trial.seed}"
        bar.show("runs", ended, step.total, f"run {step.number} of {step.total}: {names}")

    try:
        yield listen
    finally:
        bar.clear()


def _bar(progress: bool | None) -> NotebookBar | ProgressBar | None:
    """Return the bar of this process; None for none."""
    notebook = in_notebook()
    if progress is False or (progress is None and not notebook):
        return None
    return NotebookBar(SystemClock()) if notebook else ProgressBar(sys.stderr, SystemClock())
