"""The section about classes: the picture of the confusion matrix, and the scores of each class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgefed.charts.matrix import LEAST_SHARE, MANY, matrix_chart
from edgefed.evaluation.classification import averages
from edgefed.events.class_names import name_of
from edgefed.events.class_table import confusion_json, whose
from edgefed.events.confusion_events import confusion_of
from edgefed.events.evaluation_views import ConfusionView
from edgefed.report.html import folded, scroll, section, table, tiles
from edgefed.report.run_data import RunData
from edgefed.units import counted

HEAD = (
    "class",
    "samples",
    "predicted",
    "recall",
    "precision",
    "F1",
    "most mistaken for",
    "samples",
)

SCORES = ("recall", "precision", "f1")

UNFOLDED = 30
"""Classes of which the table is shown at once."""

TITLES = {
    "coordinator": "Classes, tested on the coordinator",
    "devices": "Classes, tested on the devices",
}


def classes_section(run_data: RunData) -> str:
    """Return the report's sections about classes; nothing where no evaluation counted them."""
    names = run_data.record.get("class_names") or ()
    return "".join(_section(view, names) for view in run_data.summary.confusions)


def class_cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a class's row of a table, as ``HEAD`` names the columns.

    Args:
        each: a row of ``confusion_json``.
    """
    scores = ("" if each[name] is None else f"{each[name]:.3f}" for name in SCORES)
    counts = (str(each["samples"]), str(each["predicted"]))
    mistaken = str(each["mistaken"]) if each["mistaken"] else ""
    return (each["name"], *counts, *scores, each["mistaken_for"] or "", mistaken)


def _section(view: ConfusionView, names: Sequence[str]) -> str:
    told = confusion_json(view, names)
    few = f" Cells below {LEAST_SHARE:.1%} of their class are not drawn."
    note = f"{whose(told).capitalize()}.{few if len(view.counts) > MANY else ''}"
    return section(TITLES[view.place], *_content(view, told, names), note=note)


def _content(view: ConfusionView, told: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    confusion = confusion_of(view)
    numbers = averages(confusion)
    yield tiles((name.replace("_", " "), f"{value:.4f}") for name, value in numbers.items())
    if told["matrix"] is not None:
        called = [name_of(label, names) for label in range(confusion.classes)]
        title = f"confusion matrix of {counted(confusion.classes, 'class', 'classes')}"
        yield scroll(matrix_chart(told["matrix"], called, title=title))
    rows = [class_cells(each) for each in told["classes"]]
    classes = scroll(table(HEAD, rows, (1, 2, 3, 4, 5, 7)))
    summary = f"{counted(len(rows), 'class', 'classes')}, lowest F1 first"
    yield classes if len(rows) <= UNFOLDED else folded(summary, classes)
