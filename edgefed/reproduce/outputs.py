"""Write a reproduced table as text, JSON and files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgefed.config.loading.write import to_toml
from edgefed.files.writing import write_output
from edgefed.reproduce.measure import Entry, entries, verdicts
from edgefed.reproduce.plan import LEFT_OUT, Study
from edgefed.reproduce.table import PaperTable
from edgefed.reproduce.verdict import Verdict
from edgefed.simulator.sweep.plot import accuracy_plot
from edgefed.simulator.sweep.statistics import Spread
from edgefed.simulator.sweep.table_text import runs_csv
from edgefed.simulator.sweep.trials import TrialOutcome
from edgefed.terminal.console import columns
from edgefed.terminal.units import size


def summary(study: Study, outcome: TrialOutcome, folder: Path) -> dict[str, Any]:
    """Return the object of ``--json`` and ``table.json``; accuracies are shares."""
    table = study.table
    return {
        **described(table),
        "scale": study.scale,
        "exact": study.scaled.exact,
        "seeds": list(study.seeds),
        "folder": str(folder),
        "cells": [entry.to_json() for entry in entries(study, outcome)],
        "claims": [asdict(verdict) for verdict in verdicts(study, outcome)],
        "left_out": dict(study.scaled.left_out),
        "missing": dict(study.missing),
        "failures": [
            {"case": trial.case.name, "seed": trial.seed, "reason": outcome.failures[trial.digest]}
            for trial in study.plan().trials()
            if trial.digest in outcome.failures
        ],
        "notes": [*study.notes, *table.notes],
    }


def described(table: PaperTable) -> dict[str, Any]:
    """Return a table's row in the list."""
    return {
        "table": table.name,
        "title": table.title,
        "paper": asdict(table.paper),
        "known": table.known,
    }


def write_outputs(study: Study, outcome: TrialOutcome, folder: Path) -> None:
    """Write ``table.csv``, ``table.json``, ``runs.csv`` and two pictures for each column.

    Raises:
        StorageError: the disk does not take them.
    """
    table_json = json.dumps(summary(study, outcome, folder), indent=2, allow_nan=False)
    files = {
        "table.csv": _csv(entries(study, outcome)),
        "table.json": f"{table_json}\n",
        "runs.csv": runs_csv(study.plan(), outcome),
    }
    for number, column in enumerate(study.scaled.columns, 1):
        plan = study.plan(column)
        if plan.cases:
            name = f"{number:02d}-{_file_name(column.label)}"
            files[f"{name}.svg"] = accuracy_plot(plan, outcome)
            files[f"{name}-bytes.svg"] = accuracy_plot(plan, outcome, "bytes")
    for name, text in files.items():
        write_output(folder / name, text.encode())


def write_recipes(study: Study, folder: Path) -> list[Path]:
    """Write each cell's recipe, with the first seed, as a file; return the files.

    Raises:
        StorageError: the disk does not take them.
    """
    paths = []
    for cell in study.cells:
        name = _file_name(f"{cell.column.label} {cell.row.label}")
        recipe = cell.case.recipe.model_copy(update={"seed": study.seeds[0]})
        path = folder / f"{name}.toml"
        write_output(path, to_toml(recipe, comments=False).encode())
        paths.append(path)
    return paths


# -- as text --------------------------------------------------------------------------------------


def text(study: Study, outcome: TrialOutcome) -> str:
    """Return the table for people, then the claims, the omissions, and notes."""
    rows = entries(study, outcome)
    parts = [
        f"{study.table.name}, scale {study.scale}: {study.table.title}",
        columns(_entry_rows(study, rows)),
    ]
    judged = verdicts(study, outcome)
    if judged:
        head = ("CLAIM", "COLUMN", "CAME OUT", "BY (POINTS, 95 %)", "PUBLISHED")
        shown = len(head) if study.table.published else -1
        verdict_rows = [head, *(_verdict_row(verdict) for verdict in judged)]
        parts.append(columns([row[:shown] for row in verdict_rows]))
    left_out = study.scaled.left_out
    absent = [f"{what}: {why}" for what, why in left_out.items() if why != LEFT_OUT]
    if not_asked := [what for what, why in left_out.items() if why == LEFT_OUT]:
        absent.append(f"{', '.join(not_asked)}: {LEFT_OUT}")
    absent += [f"{row}: {reason}" for row, reason in study.missing.items()]
    for title, lines in (("Left out", absent), ("Notes", [*study.notes, *study.table.notes])):
        if lines:
            parts.append("\n".join([title, *(f"  {line}" for line in lines)]))
    return "\n\n".join(parts)


def _entry_rows(study: Study, rows: list[Entry]) -> list[tuple[str, ...]]:
    head = ["COLUMN", "ROW", "RUNS", "ACCURACY %"]
    more: list[Callable[[Entry], str]] = []
    if study.table.published:
        head.append("PUBLISHED %")
        more.append(_published)
    if study.scaled.exact:
        head.append("DIFFERENCE")
        more.append(_difference)
    if any(column.target is not None for column in study.scaled.columns):
        head += ["ROUNDS TO", "BYTES"]
        more += [_rounds, _bytes]
    if any(entry.growth.count for entry in rows):
        head.append("GROWTH")
        more.append(_grown)
    return [
        tuple(head),
        *((*_entry_row(entry), *(cell(entry) for cell in more)) for entry in rows),
    ]


def _entry_row(entry: Entry) -> tuple[str, ...]:
    cell, count = entry.cell, str(entry.accuracy.count)
    return (
        cell.column.label,
        cell.row.label,
        f"{count}, {entry.failed} failed" if entry.failed else count,
        _percent(entry.accuracy),
    )


def _published(entry: Entry) -> str:
    known, column = entry.published, entry.cell.column
    if known is None:
        return "not known"
    more = "" if known.deviation is None else f" ± {known.deviation:.1f}"
    of = f" ({column.of})" if column.of != column.label else ""
    return f"{known.value:.1f}{more}{of}"


def _difference(entry: Entry) -> str:
    return "" if entry.difference is None else f"{entry.difference:+.1f}"


def _rounds(entry: Entry) -> str:
    target = entry.cell.column.target
    if target is None:
        return ""
    reached, runs = entry.rounds, entry.accuracy.count
    of = f" ({reached.count} of {runs})" if reached.count < runs else ""
    shown = "never" if reached.mean is None else f"{reached.mean:.1f}"
    if reached.deviation is not None:
        shown += f" ± {reached.deviation:.1f}"
    return f"{100 * target:g} %: {shown}{of}"


def _bytes(entry: Entry) -> str:
    return "" if entry.bytes_to.mean is None else size(entry.bytes_to.mean)


def _grown(entry: Entry) -> str:
    return "" if entry.growth.mean is None else f"{entry.growth.mean:.2f}"


def _verdict_row(verdict: Verdict) -> tuple[str, ...]:
    by = "" if verdict.mean is None else f"{100 * verdict.mean:+.1f}"
    if verdict.noise is not None:
        by += f" ± {100 * verdict.noise:.1f}"
    word = f"{verdict.word}: {verdict.reason}" if verdict.reason else verdict.word
    own = "not known" if verdict.published is None else f"{100 * verdict.published:+.1f}"
    return verdict.claim, verdict.column, word, by, own


def _percent(value: Spread) -> str:
    if value.mean is None:
        return ""
    more = "" if value.deviation is None else f" ± {100 * value.deviation:.1f}"
    return f"{100 * value.mean:.1f}{more}"


# -- as files -------------------------------------------------------------------------------------


def _csv(rows: list[Entry]) -> str:
    out = io.StringIO()
    names = [
        *("column", "of", "row", "runs", "failed", "accuracy_mean", "accuracy_std", "published"),
        *("source", "target", "rounds_to_target_mean", "rounds_to_target_std", "reached_target"),
        *("bytes_to_target_mean", "growth_mean"),
    ]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for entry in rows:
        fields = entry.to_json()
        writer.writerow(
            {
                **{name: fields[name] for name in names if name in fields},
                "runs": entry.accuracy.count,
                "accuracy_mean": entry.accuracy.mean,
                "accuracy_std": entry.accuracy.deviation,
                "rounds_to_target_mean": entry.rounds.mean,
                "rounds_to_target_std": entry.rounds.deviation,
                "reached_target": entry.rounds.count,
                "bytes_to_target_mean": entry.bytes_to.mean,
                "growth_mean": entry.growth.mean,
            }
        )
    return out.getvalue()


def _file_name(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.")
