"""NaiveMix: mixup with averaged data of others.

Yoon, Shin, Hwang, Yang: FedMix: Approximation of Mixup under Mean Augmented Federated Learning,
ICLR 2021, equation 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edgefed.learn.models import Model
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.entries import (
    check_entries,
    check_ratio,
    check_real,
    draw_entries,
    entries,
)
from edgefed.learn.objectives.losses import Loss, mixture
from edgefed.learn.objectives.mixing import Mixed, Mixing
from edgefed.learn.types import Array, Batch, Context


@dataclass(frozen=True)
class NaiveMix(Mixing):
    """(1-λ) ℓ(f((1-λ) X + λ x̄), Y) + λ ℓ(f((1-λ) X + λ x̄), ȳ).

    One entry (x̄, ȳ) of the extras is drawn for each batch. As ℓ is linear in its targets, both
    terms are one loss against (1-λ) Y + λ ȳ; see ``losses``.

    Attributes:
        ratio: λ from 0 to 1, the same at every step; 0 is ℓ itself, bit for bit. The paper takes
            0.1 for CIFAR-10 and CIFAR-100 and 0.2 for FEMNIST.
        loss: ℓ.
    """

    ratio: float
    loss: Loss = field(default_factory=CrossEntropy)

    def __post_init__(self) -> None:
        check_ratio("NaiveMix", "ratio", self.ratio)

    def check(self, model: Model, extra: Mapping[str, Array]) -> None:
        """Check that there is something to mix, and something to mix it with.

        Raises:
            DataError: the inputs are tokens, or the extras are no entries for this model.
        """
        check_real("NaiveMix", model.vocabulary)
        check_entries("NaiveMix", extra, model.shape, model.classes)

    def draw(
        self, generator: np.random.Generator, size: int, extra: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return which entry the batch is mixed with."""
        return draw_entries(generator, 1, extra)

    def mixed(self, batch: Batch, context: Context) -> Mixed:
        """Return the mixed batch of a step."""
        if self.ratio == 0:
            return Mixed(batch.inputs, batch.targets)
        other, ratio = entries(context, batch.inputs), self.ratio
        inputs = mixture(ratio, batch.inputs, other.inputs)
        return Mixed(inputs, batch.targets, other.targets, ratio)
