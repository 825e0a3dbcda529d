"""The entries of averaged data, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Entries:
    """Averaged data: G pairs of a mean input and a mean target.

    Attributes:
        inputs: float32 (G, …), of preprocessed inputs or of hidden states; for tokens (G, length,
            vocabulary), means of one-hot vectors, or raw int64 (G, length) in a simulation.
        targets: float32 (G, classes), of one-hot labels or of the targets themselves.
    """

    inputs: Array
    targets: Array

    def __len__(self) -> int:
        return len(self.targets)
