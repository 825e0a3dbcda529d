"""A device's samples as plain arrays, used by the learning core and the data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples in memory; equal only to itself, as arrays have no single truth value.

    Attributes:
        inputs: float32 array (n, …), or int64 tokens (n, length).
        targets: int64 labels (n,), or float32 targets (n, classes): shares of labels, or
            numbers, one for each output.
        columns: int64 arrays (n,) by name, of what else is known of each sample, such as the
            ``rotation`` of an image or the ``site`` it is from: numbers of categories, from 0.
    """

    inputs: npt.NDArray[Any]
    targets: npt.NDArray[Any]
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

    @property
    def has_labels(self) -> bool:
        """Whether targets are labels, and not a row of numbers for each sample."""
        return self.targets.ndim == 1 and self.targets.dtype.kind in "iu"

    def __len__(self) -> int:
        return len(self.targets)
