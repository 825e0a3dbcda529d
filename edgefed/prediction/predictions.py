"""The predictions of a model for some inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefed.errors import DataError


@dataclass(frozen=True)
class Guess:
    """A class that an input may have.

    Attributes:
        label: the class's name, or its number.
        probability: that the input has it.
    """

    label: str
    probability: float


@dataclass(frozen=True)
class ClassResult:
    """The results of one class, over inputs whose class is known.

    Attributes:
        label: the class's name.
        samples: number of inputs of the class.
        predicted: number of inputs predicted as it.
        recall: share of its inputs that are predicted right; None without any.
        precision: share of its predictions that are right; None without any.
    """

    label: str
    samples: int
    predicted: int
    recall: float | None
    precision: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        return asdict(self)


def class_results(
    counts: Mapping[tuple[str, str], int], names: Sequence[str]
) -> tuple[ClassResult, ...]:
    """Return the results of the classes that occur, in the order of the model's classes.

    Args:
        counts: number of inputs by true and predicted class.
        names: of the model's classes.
    """
    results = []
    for name in names:
        samples = sum(count for (own, _), count in counts.items() if own == name)
        predicted = sum(count for (_, other), count in counts.items() if other == name)
        hits = counts.get((name, name), 0)
        recall = hits / samples if samples else None
        precision = hits / predicted if predicted else None
        if samples or predicted:
            results.append(ClassResult(name, samples, predicted, recall, precision))
    return tuple(results)


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions of a model for n inputs.

    Attributes:
        outputs: float32 (n, classes) probabilities; of a model that was trained with squared
            error, the numbers (n, outputs) that it predicts.
        names: of the classes; empty for a model that predicts numbers.
        paths: the file of each input; empty for arrays.
        expected: of files, the class that each one's folder names; an empty text for none.
    """

    outputs: npt.NDArray[np.float32]
    names: tuple[str, ...]
    paths: tuple[Path, ...] = ()
    expected: tuple[str, ...] = ()

    @property
    def probabilities(self) -> npt.NDArray[np.float32]:
        """The probability of each class, (n, classes).

        Raises:
            DataError: ``predict.numbers``: the model predicts numbers.
        """
        if not self.names:
            raise DataError(
                "The model predicts numbers and not classes.",
                code="predict.numbers",
                hint="read the predictions' outputs",
            )
        return self.outputs

    @property
    def classes(self) -> npt.NDArray[np.int64]:
        """The number of the most probable class of each input, (n,)."""
        return np.asarray(self.probabilities.argmax(axis=1), np.int64)

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of the most probable class of each input."""
        return tuple(self.names[number] for number in self.classes)

    def by_class(self) -> tuple[ClassResult, ...]:
        """Return the recall and the precision of each class, of the inputs whose class is known."""
        pairs = zip(self.expected, self.labels, strict=True) if any(self.expected) else ()
        return class_results(Counter(pair for pair in pairs if pair[0]), self.names)

    def top(self, count: int) -> list[tuple[Guess, ...]]:
        """Return the ``count`` most probable classes of each input, the most probable first."""
        return [self._top(row, count) for row in self.probabilities]

    def _top(self, row: npt.NDArray[Any], count: int) -> tuple[Guess, ...]:
        order = np.argsort(-row, kind="stable")[:count]
        return tuple(Guess(self.names[number], float(row[number])) for number in order)

    def __len__(self) -> int:
        return len(self.outputs)
