"""The data of the screen of classes: classes in order, and confused pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from edgefed.events.base.evaluation_views import ConfusionView, TestPlace

Matrix = Sequence[Sequence[int]]


@dataclass(frozen=True)
class ClassRow:
    """One class that occurs as a true or a predicted label.

    Attributes:
        recall: share of its samples that are predicted right; None without samples.
        mistaken_for: the most frequent wrong prediction of its samples; empty for none.
        mistaken: share of its samples with that prediction.
    """

    label: int
    name: str
    samples: int
    recall: float | None
    precision: float | None
    f1: float | None
    mistaken_for: str
    mistaken: float


@dataclass(frozen=True)
class Pair:
    """Samples of one class that are predicted as another."""

    true: str
    predicted: str
    samples: int
    share: float


@dataclass(frozen=True)
class ClassTest:
    """The counts of one place.

    Attributes:
        summary: round, samples and number of devices in words.
        rows: the classes, the lowest recall first; those without samples last.
        matrix: samples by true and predicted label; None where there are too many classes.
    """

    place: TestPlace
    round: int
    summary: str
    rows: tuple[ClassRow, ...]
    matrix: Matrix | None

    @property
    def never(self) -> list[ClassRow]:
        """The classes of which no sample is predicted right, those with most samples first."""
        return [row for row in self.rows if row.recall == 0]

    @cached_property
    def by_label(self) -> tuple[ClassRow, ...]:
        """The classes in the order of their labels."""
        return tuple(sorted(self.rows, key=lambda row: row.label))

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Pairs of a class and its wrong prediction, the most frequent first."""
        names = {row.label: row.name for row in self.rows}
        pairs = [
            Pair(names[true], names[other], count, count / sum(row))
            for true, row in enumerate(self.matrix or ())
            for other, count in enumerate(row)
            if count and true != other
        ]
        return tuple(sorted(pairs, key=lambda pair: (-pair.samples, pair.true, pair.predicted)))


@lru_cache(maxsize=8)
def class_test(view: ConfusionView, names: tuple[str, ...]) -> ClassTest:
    """Return the class results from the counts of a test.

    Args:
        view: the counts.
        names: of labels; empty when they are plain integers.
    """
    from edgefed.events.base.class_table import confusion_json, whose  # loads numpy

    test = confusion_json(view, names)
    rows = sorted((_row(row) for row in test["classes"]), key=_worst_first)
    return ClassTest(view.place, view.round, whose(test), tuple(rows), test["matrix"])


def _row(row: dict[str, Any]) -> ClassRow:
    shown = {name: row[name] for name in ("label", "name", "samples", "recall", "precision", "f1")}
    mistaken = row["mistaken"] / row["samples"] if row["samples"] else 0.0
    return ClassRow(**shown, mistaken_for=row["mistaken_for"] or "", mistaken=mistaken)


def _worst_first(row: ClassRow) -> tuple[bool, float, int, int]:
    return row.recall is None, row.recall or 0.0, -row.samples, row.label
