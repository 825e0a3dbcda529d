"""The base of panes that show some runs side by side instead of the current one."""

from __future__ import annotations

from rich.text import Text

from edgefed.events.history.run_comparison import Comparison
from edgefed.tui.look.text_format import clean
from edgefed.tui.look.theme import GREEN, MUTED, ORANGE, PURPLE, SKY, VERMILLION
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.state.display_state import Shown

COLOURS = (SKY, ORANGE, GREEN, PURPLE)
"""Of the runs, in their order; the letters say the same without colours."""

LETTERS = "ABCD"
"""Of the runs, in their order."""

CURVES = ("", ":", "+", "x")
"""Characters of the runs' curves, in their order; empty for dots."""

READING = "Reading the runs…"


class ComparedRunsPane(Pane):
    """Keeps the comparison; before the first one, shows why there is none."""

    comparison: Comparison | None = None
    problem = ""
    _as_of = ""

    def take(self, comparison: Comparison | None, problem: str) -> None:
        """Take a comparison or a problem; a problem leaves the shown comparison."""
        self.comparison = comparison or self.comparison
        if comparison is not None and self.shown is not None:
            self._as_of = self.shown.time_now
        self.problem = problem

    def footing(self, shown: Shown) -> str:
        """Return the time of the runs if they could not be read again; else nothing."""
        return f"from {self._as_of}" if self.problem and self._as_of else ""

    def face(self, shown: Shown) -> Text | None:
        """Return the problem, or that the runs are being read."""
        if self.comparison is not None:
            return None
        if self.problem:
            return Text("\n".join(map(clean, self.problem.split("\n"))), VERMILLION)
        return Text(READING, MUTED)


def named(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Return letter, colour and id of each run."""
    ids = (clean(run.run) for run in comparison.runs)
    return list(zip(LETTERS, COLOURS, ids, strict=False))
