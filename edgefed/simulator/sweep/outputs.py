"""The files at the end of a sweep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgefed.charts.paper_figure import Format
from edgefed.files.writing import write_output
from edgefed.simulator.sweep.plan import Plan
from edgefed.simulator.sweep.plot import figures
from edgefed.simulator.sweep.table import case_rows, cases_csv, runs_csv
from edgefed.simulator.sweep.trials import TrialOutcome


def summary(plan: Plan, outcome: TrialOutcome, folder: Path) -> dict[str, Any]:
    """Return the output of ``--json``, which ``table.json`` holds too."""
    return {
        "folder": str(folder),
        "seeds": list(plan.seeds),
        "target": plan.target,
        "cases": [row.to_json() for row in case_rows(plan, outcome)],
        "failures": [
            {"case": trial.case.name, "seed": trial.seed, "reason": outcome.failures[trial.digest]}
            for trial in plan.trials()
            if trial.digest in outcome.failures
        ],
    }


def write_outputs(
    plan: Plan,
    outcome: TrialOutcome,
    folder: Path,
    formats: Sequence[Format] = (),
    metrics: Sequence[str] = ("accuracy",),
) -> None:
    """Write ``table.csv``, ``runs.csv``, ``table.json`` and the pictures of metrics.

    Args:
        plan: of the sweep.
        outcome: its results.
        folder: for the files.
        formats: of pictures, beside SVG.
        metrics: numbers of the rounds that have a picture.

    Raises:
        StorageError: the disk does not take them.
        UsageError: ``figures.missing``: other formats need matplotlib, which is not installed.
    """
    table_json = json.dumps(summary(plan, outcome, folder), indent=2, allow_nan=False)
    for name, text in (
        ("table.csv", cases_csv(case_rows(plan, outcome))),
        ("runs.csv", runs_csv(plan, outcome)),
        ("table.json", f"{table_json}\n"),
    ):
        write_output(folder / name, text.encode())
    for name, picture in figures(plan, outcome, metrics, formats).items():
        write_output(folder / name, picture)
