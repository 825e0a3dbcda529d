"""What a model predicts of some inputs."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model predicts of n inputs.

    Attributes:
        outputs: float32 (n, classes) probabilities; of a model that was trained with squared
            error, the numbers (n, outputs) that it predicts.
        names: what each class is called; empty for a model that predicts numbers.
    """

    outputs: npt.NDArray[np.float32]
    names: tuple[str, ...]

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

    def top(self, count: int) -> list[tuple[Guess, ...]]:
        """Return the ``count`` most probable classes of each input, the most probable first."""
        return [self._top(row, count) for row in self.probabilities]

    def _top(self, row: npt.NDArray[Any], count: int) -> tuple[Guess, ...]:
        order = np.argsort(-row, kind="stable")[:count]
        return tuple(Guess(self.names[number], float(row[number])) for number in order)

    def __len__(self) -> int:
        return len(self.outputs)
