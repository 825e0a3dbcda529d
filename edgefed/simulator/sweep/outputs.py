"""The files of a sweep: its tables and its picture, after each seed and at its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgefed.charts.paper_figure import FORMATS, Format
from edgefed.files.writing import write_output
from edgefed.simulator.sweep.plan import Plan
from edgefed.simulator.sweep.plot import figures
from edgefed.simulator.sweep.report import accuracy_metric
from edgefed.simulator.sweep.table import SweepColumn, Table, curve_columns, make_table
from edgefed.simulator.sweep.table_latex import latex
from edgefed.simulator.sweep.table_text import cases_csv, markdown, runs_csv
from edgefed.simulator.sweep.trials import TrialOutcome

TABLES = ("table.csv", "table.md", "table.tex", "table.json", "runs.csv")


def summary(plan: Plan, table: Table, folder: Path) -> dict[str, Any]:
    """Return the output of ``--json``, which ``table.json`` holds too."""
    return {
        "folder": str(folder),
        "seeds": list(plan.seeds),
        "target": plan.target,
        "cases": [row.to_json() for row in table.rows],
        "failures": [
            dict(zip(("case", "seed", "reason", "file"), failure, strict=True))
            for failure in table.failures
        ],
        "report": [asdict(metric) for metric in plan.report],
        "columns": {column.key: column.label for column in table.columns if not column.hidden},
        "baseline": table.baseline,
        "choices": [choice.to_json() for choice in table.choices],
        "missing": dict(table.missing),
    }


def drawn_columns(plan: Plan, outcome: TrialOutcome) -> list[SweepColumn]:
    """Return the metrics that have a picture; those without a value in any round have none."""
    return curve_columns(plan.report, list(outcome.results.values()))


def file_names(
    plan: Plan, outcome: TrialOutcome, formats: Sequence[Format] = ()
) -> tuple[str, ...]:
    """Return the names of the files that ``write_outputs`` writes."""
    drawn = drawn_columns(plan, outcome)
    pictures = (f"{column.key}.{end}" for column in drawn for end in ("svg", *formats))
    return (*TABLES, *pictures)


def write_outputs(
    plan: Plan, outcome: TrialOutcome, folder: Path, formats: Sequence[Format] = ()
) -> Table:
    """Write the tables and the pictures of the runs so far, and return the table.

    Args:
        plan: of the sweep.
        outcome: its results.
        folder: for the files.
        formats: of pictures, beside SVG.

    Raises:
        StorageError: the disk does not take them.
        UsageError: ``figures.missing``: other formats need matplotlib, which is not installed.
    """
    table = make_table(plan, outcome)
    table_json = json.dumps(summary(plan, table, folder), indent=2, allow_nan=False)
    texts = (
        cases_csv(table),
        markdown(table),
        latex(table),
        f"{table_json}\n",
        runs_csv(plan, outcome, table),
    )
    for name, text in zip(TABLES, texts, strict=True):
        write_output(folder / name, text.encode())
    pictures = figures(plan, outcome, drawn_columns(plan, outcome), formats)
    for name, picture in pictures.items():
        write_output(folder / name, picture)
    for metric in (accuracy_metric(), *plan.report):
        if f"{metric.name}.svg" not in pictures:  # one of earlier runs does not fit the tables
            for end in ("svg", *FORMATS):
                with suppress(OSError):
                    (folder / f"{metric.name}.{end}").unlink()
    return table
