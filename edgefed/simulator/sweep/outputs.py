"""The files of a sweep: its tables and its picture, after each seed and at its end."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgefed.files.writing import write_output
from edgefed.simulator.sweep.plan import Plan
from edgefed.simulator.sweep.plot import accuracy_plot
from edgefed.simulator.sweep.table import Table, make_table
from edgefed.simulator.sweep.table_text import cases_csv, latex, markdown, runs_csv
from edgefed.simulator.sweep.trials import TrialOutcome

FILES = ("table.csv", "table.md", "table.tex", "table.json", "runs.csv", "accuracy.svg")


def summary(plan: Plan, table: Table, folder: Path) -> dict[str, Any]:
    """Return the output of ``--json``, which ``table.json`` holds too."""
    return {
        "folder": str(folder),
        "seeds": list(plan.seeds),
        "target": plan.target,
        "cases": [row.to_json() for row in table.rows],
        "failures": [
            {"case": case, "seed": seed, "reason": reason} for case, seed, reason in table.failures
        ],
        "report": [asdict(metric) for metric in plan.report],
        "columns": {column.key: column.label for column in table.columns if not column.hidden},
        "baseline": table.baseline,
        "choices": [choice.to_json() for choice in table.choices],
        "missing": dict(table.missing),
    }


def write_outputs(plan: Plan, outcome: TrialOutcome, folder: Path) -> Table:
    """Write the tables and ``accuracy.svg`` of the runs so far, and return the table.

    Raises:
        StorageError: the disk does not take them.
    """
    table = make_table(plan, outcome)
    table_json = json.dumps(summary(plan, table, folder), indent=2, allow_nan=False)
    texts = (
        cases_csv(table),
        markdown(table),
        latex(table),
        f"{table_json}\n",
        runs_csv(plan, outcome, table),
        accuracy_plot(plan, outcome),
    )
    for name, text in zip(FILES, texts, strict=True):
        write_output(folder / name, text.encode())
    return table
