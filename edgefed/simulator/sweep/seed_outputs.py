"""Write a sweep's files after each seed, with a warning on each metric that no run has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from edgefed.charts.paper_figure import Format
from edgefed.simulator.sweep.outputs import write_outputs
from edgefed.simulator.sweep.plan import Plan
from edgefed.simulator.sweep.table import Table
from edgefed.simulator.sweep.trials import TrialOutcome


class SeedOutputs:
    """Writes the files of a sweep again and again.

    Args:
        plan: of the sweep.
        folder: for the files.
        formats: of figures, beside SVG.
        warn: called once for each metric of the report that no finished run has.
    """

    def __init__(
        self, plan: Plan, folder: Path, formats: Sequence[Format], warn: Callable[[str], object]
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._formats = formats
        self._warn = warn
        self._warned: set[str] = set()

    def write(self, outcome: TrialOutcome) -> Table:
        """Write the files of the runs so far and return the table; see ``write_outputs``."""
        table = write_outputs(self._plan, outcome, self._folder, self._formats)
        for name, text in table.missing.items():
            if name not in self._warned:
                self._warn(f"report: {text}")
            self._warned.add(name)
        return table
