"""The classes of an evaluation as text: precision, recall and F1 of each, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgefed.terminal.console import columns

MAX_CLASSES = 20
"""Classes that are shown; ``--json`` has all."""

MAX_NAME = 18
"""Characters of a class that are shown, so that a row fits into 80."""

SCORES = ("recall", "precision", "f1")

HEAD = ("CLASS", "SAMPLES", "RECALL", "PRECISION", "F1", "MOST MISTAKEN FOR")


def class_tables(tests: Iterable[Mapping[str, Any]]) -> str:
    """Return a table for each place that was tested, each after an empty line.

    Args:
        tests: as ``run show --json`` has them under ``confusions``.
    """
    return "".join(f"\n\n{_table(test)}" for test in tests)


def _table(test: Mapping[str, Any]) -> str:
    from edgefed.events.base.class_table import whose

    rows = test["classes"]
    shown = columns([HEAD, *map(_row, rows[:MAX_CLASSES])])
    text = f"Tested in {whose(test)}.".replace("; ", ";\n") + f"\n{shown}"
    if len(rows) <= MAX_CLASSES:
        return text
    return f"{text}\n… and {len(rows) - MAX_CLASSES} classes with a higher F1: --json"


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = ("-" if row[name] is None else f"{row[name]:.3f}" for name in SCORES)
    other = ""
    if row["mistaken"]:
        other = f"{_cut(row['mistaken_for'])} ({row['mistaken'] / row['samples']:.0%})"
    return (_cut(row["name"]), str(row["samples"]), *numbers, other)


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
