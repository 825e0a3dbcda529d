"""The confusion matrix of a test: integer counts by class, which sum exactly over devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

MAX_MATRIX_CLASSES = 200
"""Most classes of which the whole matrix is kept; of more, only the sums for each class are."""

MAX_CLASSES = 4096
"""Most classes that are counted at all."""

MAX_SAMPLES = 2**40
"""Most samples of one test; sums over all devices of a fleet cannot overflow."""

_SUMS = 3
"""Rows of the sums for each class: its samples, its predictions, and those that are right."""


@dataclass(frozen=True, eq=False)
class Confusion:
    """Counts of a test; equal only to itself, as arrays have no single truth value.

    Attributes:
        counts: (classes, classes), samples by true label and predicted label. Of more than
            ``MAX_MATRIX_CLASSES`` classes (3, classes): samples of each true label, samples of each
            predicted label, and samples where both are this label.
    """

    counts: Counts

    @classmethod
    def of(cls, labels: npt.ArrayLike, predicted: npt.ArrayLike, classes: int) -> Confusion:
        """Return the counts of samples with these true and predicted labels."""
        true, guesses = np.asarray(labels, np.int64), np.asarray(predicted, np.int64)
        if classes <= MAX_MATRIX_CLASSES:
            cells = np.bincount(true * classes + guesses, minlength=classes * classes)
            return cls(cells.astype(np.int64).reshape(classes, classes))
        groups = (true, guesses, true[true == guesses])
        sums = [np.bincount(part, minlength=classes) for part in groups]
        return cls(np.stack(sums).astype(np.int64))

    @classmethod
    def total(cls, parts: Iterable[Confusion]) -> Confusion | None:
        """Return the sum of several tests, in which each sample counts once; None of none."""
        total: Counts | None = None
        for part in parts:
            total = part.counts.astype(np.int64) if total is None else total + part.counts
        return None if total is None else cls(total)

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return int(self.counts.shape[1])

    @property
    def matrix(self) -> Counts | None:
        """Samples by true label and predicted label; None where only sums are kept."""
        return self.counts if self.classes <= MAX_MATRIX_CLASSES else None

    @property
    def samples(self) -> Counts:
        """Samples of each true label."""
        return np.asarray(self.counts[0] if self.matrix is None else self.counts.sum(axis=1))

    @property
    def predicted(self) -> Counts:
        """Samples of each predicted label."""
        return np.asarray(self.counts[1] if self.matrix is None else self.counts.sum(axis=0))

    @property
    def hits(self) -> Counts:
        """Samples of each label that are predicted as this label."""
        return np.asarray(self.counts[2] if self.matrix is None else np.diagonal(self.counts))

    def rows(self) -> list[list[int]]:
        """Return the counts as plain integers."""
        return [[int(count) for count in row] for row in self.counts]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> Confusion:
        """Return the counts in ``rows``.

        Raises:
            ValueError: they are not counts of classes.
        """
        counts = np.array(rows, np.int64)
        if counts.ndim != 2 or counts.shape != counts_shape(int(counts.shape[1])):
            raise ValueError("rows of another number of classes")
        if (counts < 0).any():
            raise ValueError("negative counts")
        return cls(counts)


def counts_shape(classes: int) -> tuple[int, int] | None:
    """Return the shape of the counts of so many classes; None where they are not counted."""
    if not 2 <= classes <= MAX_CLASSES:
        return None
    return (classes if classes <= MAX_MATRIX_CLASSES else _SUMS, classes)


def counts_problem(confusion: Confusion, samples: int, hits: int) -> str:
    """Return why counts are not those of a test with so many samples and hits, or nothing."""
    if int(confusion.counts.min()) < 0:
        return "it counts fewer than no samples"
    for name, counts in (("true", confusion.samples), ("predicted", confusion.predicted)):
        if int(counts.sum()) != samples:
            return f"it counts {int(counts.sum())} {name} labels of {samples} samples"
    if (confusion.hits > np.minimum(confusion.samples, confusion.predicted)).any():
        return "it counts more right predictions of a label than predictions or samples"
    if int(confusion.hits.sum()) != hits:
        return f"it counts {int(confusion.hits.sum())} right predictions, its accuracy {hits}"
    return ""
