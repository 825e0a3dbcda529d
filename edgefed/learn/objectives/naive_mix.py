"""NaiveMix: mixup with averaged data of others.

Yoon, Shin, Hwang, Yang: FedMix: Approximation of Mixup under Mean Augmented Federated Learning,
ICLR 2021, equation 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from edgefed.learn.models import Model
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.entries import (
    check_entries,
    check_ratio,
    check_real,
    draw_entries,
    entries,
)
from edgefed.learn.objectives.losses import Loss, mixture, soft
from edgefed.learn.types import Array, Batch, Context, Forward, Params


@dataclass(frozen=True)
class NaiveMix:
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

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss."""
        if self.ratio == 0:
            return self.loss.of(forward(params, batch.inputs), batch.targets)
        other = entries(context, batch.inputs)
        outputs = forward(params, mixture(self.ratio, batch.inputs, other.inputs))
        targets = mixture(self.ratio, soft(batch.targets, other.targets), other.targets)
        return self.loss.of(outputs, targets)
