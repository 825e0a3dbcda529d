"""The counts of an evaluation as a table by class, for ``--json``, ``run show`` and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgefed.evaluation.classification import ClassScore, class_scores, worst_first
from edgefed.events.base.class_names import name_of
from edgefed.events.base.confusion_events import confusion_of
from edgefed.events.base.evaluation_views import ConfusionView
from edgefed.terminal.units import counted


def confusion_json(view: ConfusionView, names: Sequence[str]) -> dict[str, Any]:
    """Return counts, with the scores of each class that occurs, the worst first.

    Args:
        view: the counts.
        names: of labels; empty when they are plain integers.
    """
    confusion = confusion_of(view)
    matrix = None if confusion.matrix is None else confusion.rows()
    rows = worst_first(class_scores(confusion))
    told = view.model_dump(mode="json", exclude={"counts"})
    return {**told, "matrix": matrix, "classes": [_row(row, names) for row in rows]}


def whose(test: Mapping[str, Any]) -> str:
    """Return in words the tested samples, and the number of devices with counts.

    Args:
        test: the result of ``confusion_json``.
    """
    samples = sum(each["samples"] for each in test["classes"])
    told = f"round {test['round']}, {counted(samples, 'held-out sample')}"
    if test["place"] == "coordinator":
        return f"{told} of the coordinator"
    silent = test["tested"] - test["devices"]
    told = f"{told} of {counted(test['devices'], 'device')}"
    if not silent:
        return told
    return f"{told}; {silent} of {counted(test['tested'], 'device')} shared no labels"


def _row(each: ClassScore, names: Sequence[str]) -> dict[str, Any]:
    other = None if each.mistaken_for is None else name_of(each.mistaken_for, names)
    return {
        "label": each.label,
        "name": name_of(each.label, names),
        "samples": each.samples,
        "predicted": each.predicted,
        "precision": each.precision,
        "recall": each.recall,
        "f1": each.f1,
        "mistaken_for": other,
        "mistaken": each.mistaken,
    }
