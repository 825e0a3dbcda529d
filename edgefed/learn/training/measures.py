"""Measurements of a test beside loss and accuracy: the confusion matrix, and top-k hits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgefed.config.recipes.recipe import EvaluationSection
from edgefed.config.recipes.sections import LossName
from edgefed.evaluation.confusion import Confusion, counts_shape
from edgefed.learn.base.types import Array

LEAST_TOP_K = 2
"""The first k whose hits are not those of the accuracy."""


@dataclass(frozen=True)
class Measures:
    """The measurements of a test.

    Attributes:
        confusion: whether it counts samples by true and predicted label.
        top_k: it counts samples whose label is among the k with the largest outputs; 0 for none.
        metrics: names of users' own metrics.
    """

    confusion: bool = False
    top_k: int = 0
    metrics: tuple[str, ...] = ()

    @property
    def top_k_name(self) -> str:
        """The name of the share of top-k hits, such as ``top5_accuracy``."""
        return f"top{self.top_k}_accuracy"


NOTHING_MORE = Measures()
"""Loss and accuracy only."""


def measures_of(section: EvaluationSection, loss: LossName, classes: int) -> Measures:
    """Return the measurements of a recipe's tests; k is below the number of classes.

    Squared error has no labels to count, which leaves users' own metrics.
    """
    if loss == "squared_error":
        return Measures(metrics=section.metrics)
    top_k = min(section.top_k, classes - 1)
    counted = section.confusion and counts_shape(classes) is not None
    return Measures(counted, top_k if top_k >= LEAST_TOP_K else 0, section.metrics)


class Tally:
    """Counts the measurements of a test, batch by batch.

    Args:
        measures: the measurements to count.
    """

    def __init__(self, measures: Measures) -> None:
        self._measures = measures
        self._top_k_hits = 0
        self._parts: list[Confusion] = []
        self.right = 0

    def add(self, scores: Array, predicted: Array, labels: Array) -> None:
        """Count a batch.

        Args:
            scores: the model's outputs (n, classes).
            predicted: the label with the largest output, (n,).
            labels: the true labels, (n,).
        """
        self.right += int((predicted == labels).sum())
        if self._measures.top_k:
            self._top_k_hits += _hits(scores, predicted, labels, self._measures.top_k)
        if self._measures.confusion:
            self._parts.append(Confusion.of(labels, predicted, scores.shape[1]))

    @property
    def top_k_hits(self) -> int | None:
        """Samples whose label is among the first k; None where they are not counted."""
        return self._top_k_hits if self._measures.top_k else None

    @property
    def confusion(self) -> Confusion | None:
        """The counts of all batches; None where they are not counted."""
        return Confusion.total(self._parts)


def _hits(scores: Array, predicted: Array, labels: Array, count: int) -> int:
    """Return how many labels are among the ``count`` largest outputs of their samples.

    Of equal outputs the lower label comes first, as in the prediction. An output that is not a
    number comes before any other, and is no hit itself.
    """
    own = scores[np.arange(len(labels)), labels][:, None]
    later = np.arange(scores.shape[1])[None, :] >= labels[:, None]
    behind = (scores < own) | ((scores == own) & later)  # its own output among them
    first = scores.shape[1] - behind.sum(axis=1) < count
    return int((first | (predicted == labels)).sum())
