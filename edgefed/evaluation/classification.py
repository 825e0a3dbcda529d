"""Scores from a confusion matrix: precision, recall and F1 per class, and macro averages.

With h the right predictions of a class, s its samples and p its predictions,

    recall = h / s      precision = h / p      F1 = 2 h / (s + p)

Macro averages are means over the classes that occur as a true or a predicted label; a class without
predictions has precision 0 there. Balanced accuracy is the mean recall of the classes with samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from edgefed.evaluation.confusion import Confusion


@dataclass(frozen=True)
class ClassScore:
    """The scores of one class.

    Attributes:
        label: its number.
        samples: number of samples with it as true label.
        predicted: number of samples predicted as it.
        hits: number of correct ones among these.
        mistaken_for: the most frequent wrong prediction of its samples; None if there is none, or
            where no matrix is kept.
        mistaken: number of its samples with that prediction.
    """

    label: int
    samples: int
    predicted: int
    hits: int
    mistaken_for: int | None = None
    mistaken: int = 0

    @property
    def occurs(self) -> bool:
        """Whether it is any sample's true or predicted label."""
        return self.samples + self.predicted > 0

    @property
    def recall(self) -> float | None:
        """Share of its samples that are predicted right; None without samples."""
        return self.hits / self.samples if self.samples else None

    @property
    def precision(self) -> float | None:
        """Share of its predictions that are right; None without predictions."""
        return self.hits / self.predicted if self.predicted else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; None where the class does not occur."""
        return 2 * self.hits / (self.samples + self.predicted) if self.occurs else None


def class_scores(confusion: Confusion) -> list[ClassScore]:
    """Return the scores of all classes in order."""
    counted = (confusion.samples, confusion.predicted, confusion.hits)
    totals = zip(*(counts.tolist() for counts in counted), strict=True)
    return [
        ClassScore(label, samples, predicted, hits, *_mistaken(confusion, label))
        for label, (samples, predicted, hits) in enumerate(totals)
    ]


def worst_first(scores: Iterable[ClassScore]) -> list[ClassScore]:
    """Return the classes that occur, the lowest F1 first, of equal ones those with most samples."""
    occurring = [score for score in scores if score.occurs]
    return sorted(occurring, key=lambda score: (score.f1, -score.samples, score.label))


def averages(confusion: Confusion) -> dict[str, float]:
    """Return balanced accuracy and macro averages by name; empty without samples."""
    scores = [class_score for class_score in class_scores(confusion) if class_score.occurs]
    recalls = [score.recall for score in scores if score.recall is not None]
    if not recalls:
        return {}
    return {
        "balanced_accuracy": _mean(recalls),
        "macro_precision": _mean([score.precision or 0.0 for score in scores]),
        "macro_f1": _mean([score.f1 or 0.0 for score in scores]),
    }


def _mistaken(confusion: Confusion, label: int) -> tuple[int | None, int]:
    """Return which other label a label's samples are predicted as most often, and how often."""
    if confusion.matrix is None:
        return None, 0
    row = confusion.matrix[label].copy()
    row[label] = 0
    other = int(np.argmax(row))
    return (other, int(row[other])) if row[other] else (None, 0)


def _mean(values: Sequence[float]) -> float:
    """Return the mean, the same for any order."""
    return math.fsum(values) / len(values)
