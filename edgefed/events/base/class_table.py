"""The counts of an evaluation as a table by class, for ``--json``, ``run show`` and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from edgefed.evaluation.classification import ClassScore, class_scores, worst_first
from edgefed.events.base.class_names import name_of
from edgefed.events.base.confusion_events import confusion_of
from edgefed.events.base.evaluation_views import ConfusionView
from edgefed.terminal.units import counted

_NAMES, _LONGEST_NAME = 50, 18
"""Characters of the untested classes that a summary names, and of each, so that it fits into 80."""


def confusion_json(view: ConfusionView, names: Sequence[str]) -> dict[str, Any]:
    """Return counts, with the scores of each class that occurs, the worst first.

    ``untested`` names the classes of which no sample was tested.

    Args:
        view: the counts.
        names: of labels; empty when they are plain integers.
    """
    confusion = confusion_of(view)
    matrix = None if confusion.matrix is None else confusion.rows()
    rows = worst_first(class_scores(confusion))
    fields = view.model_dump(mode="json", exclude={"counts"})
    untested = [name_of(int(label), names) for label in (confusion.samples == 0).nonzero()[0]]
    classes = [_row(row, names) for row in rows]
    return {**fields, "matrix": matrix, "classes": classes, "untested": untested}


def whose(test: Mapping[str, Any]) -> str:
    """Return in words the tested samples, the number of devices with counts, and untested classes.

    Args:
        test: the result of ``confusion_json``.
    """
    samples = sum(row["samples"] for row in test["classes"])
    text = f"round {test['round']}, {counted(samples, 'held-out sample')}"
    untested = _untested(test.get("untested", ()))
    if test["place"] == "coordinator":
        return f"{text} of the coordinator{untested}"
    silent = test["tested"] - test["devices"]
    text = f"{text} of {counted(test['devices'], 'device')}"
    if silent:
        text = f"{text}; {silent} of {counted(test['tested'], 'device')} shared no labels"
    return f"{text}{untested}"


def _untested(names: Sequence[str]) -> str:
    if not names:
        return ""
    cut = [
        name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name in names
    ]
    ends = list(accumulate(len(name) + 2 for name in cut))
    fitting = sum(end <= _NAMES for end in ends)
    more = f" and {len(names) - fitting} more" if len(names) > fitting else ""
    return f"; not tested: {', '.join(cut[:fitting])}{more}"


def _row(score: ClassScore, names: Sequence[str]) -> dict[str, Any]:
    other = None if score.mistaken_for is None else name_of(score.mistaken_for, names)
    return {
        "label": score.label,
        "name": name_of(score.label, names),
        "samples": score.samples,
        "predicted": score.predicted,
        "precision": score.precision,
        "recall": score.recall,
        "f1": score.f1,
        "mistaken_for": other,
        "mistaken": score.mistaken,
    }
