"""Mixup within a device's own batch.

Zhang, Cisse, Dauphin, Lopez-Paz: mixup: Beyond Empirical Risk Minimization, ICLR 2018; the
baseline "LocalMix" of Yoon, Shin, Hwang, Yang: FedMix, ICLR 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edgefed.learn.base.types import Array, Batch, Context
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.averaged_entries import check_alpha, check_real
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.losses import Loss, mixture
from edgefed.learn.objectives.mixing import Mixed, Mixing


@dataclass(frozen=True)
class LocalMixObjective(Mixing):
    """ℓ(f((1-λ) X + λ X'), (1-λ) Y + λ Y'), with λ ~ Beta(α, α) and (X', Y') the batch reordered.

    Both are drawn in every step; the distribution of λ is that of 1-λ.

    Attributes:
        alpha: α above 0; 1 draws every share alike, small values leave most samples nearly pure.
        loss: ℓ.
    """

    alpha: float = 1.0
    loss: Loss = field(default_factory=CrossEntropy)

    def __post_init__(self) -> None:
        check_alpha("LocalMix", self.alpha)

    def check(self, model: Model, extra: Mapping[str, Array]) -> None:
        """Check that the model's inputs can be mixed.

        Raises:
            DataError: they are tokens.
        """
        check_real("LocalMix", model.vocabulary)

    def draw(
        self, generator: np.random.Generator, size: int, extra: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return λ and the order of the partners."""
        return {
            "share": np.asarray(generator.beta(self.alpha, self.alpha)),
            "partner": generator.permutation(size),
        }

    def mixed(self, batch: Batch, context: Context) -> Mixed:
        """Return the mixed batch of a step."""
        partner = context.draws["partner"]
        share = context.draws["share"].to(batch.inputs.dtype)
        inputs, targets = (part.index_select(0, partner) for part in (batch.inputs, batch.targets))
        return Mixed(mixture(share, batch.inputs, inputs), batch.targets, targets, share)
