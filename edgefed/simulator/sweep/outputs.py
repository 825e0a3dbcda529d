"""The files at the end of a sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgefed.files.writing import write_output
from edgefed.simulator.sweep.plan import Plan
from edgefed.simulator.sweep.plot import accuracy_plot
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


def write_outputs(plan: Plan, outcome: TrialOutcome, folder: Path) -> None:
    """Write ``table.csv``, ``runs.csv``, ``table.json`` and ``accuracy.svg``.

    Raises:
        StorageError: the disk does not take them.
    """
    table_json = json.dumps(summary(plan, outcome, folder), indent=2, allow_nan=False)
    for name, text in (
        ("table.csv", cases_csv(case_rows(plan, outcome))),
        ("runs.csv", runs_csv(plan, outcome)),
        ("table.json", f"{table_json}\n"),
        ("accuracy.svg", accuracy_plot(plan, outcome)),
    ):
        write_output(folder / name, text.encode())
