"""GlobalMix: mixup with raw samples of other devices, for simulations only.

The upper bound that FedMix approximates: Yoon, Shin, Hwang, Yang: FedMix, ICLR 2021, equation 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from edgefed.learn.base.types import Array, Batch, Context
from edgefed.learn.objectives.averaged_entries import (
    check_alpha,
    check_ratio,
    draw_entries,
    entries,
)
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.entry_mixing import EntryMixing
from edgefed.learn.objectives.losses import Loss, mixture
from edgefed.learn.objectives.mixing import Mixed


@dataclass(frozen=True)
class GlobalMixObjective(EntryMixing):
    """The mean over i of ℓ(f((1-λ) x_i + λ x_j), (1-λ) y_i + λ y_j), a j drawn for each sample i.

    The extras hold raw samples; each partner is drawn uniformly from all of them.

    Attributes:
        alpha: λ ~ Beta(α, α), drawn in every step, where no ratio is given.
        ratio: λ from 0 to 1, the same at every step; None to draw it.
        loss: ℓ.
    """

    alpha: float = 1.0
    ratio: float | None = None
    loss: Loss = field(default_factory=CrossEntropy)

    def __post_init__(self) -> None:
        check_alpha("GlobalMix", self.alpha)
        if self.ratio is not None:
            check_ratio("GlobalMix", "ratio", self.ratio)

    def draw(
        self, generator: np.random.Generator, size: int, extra: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return λ and each sample's partner."""
        share = generator.beta(self.alpha, self.alpha) if self.ratio is None else self.ratio
        return {"share": np.asarray(share), **draw_entries(generator, size, extra)}

    def mixed(self, batch: Batch, context: Context) -> Mixed:
        """Return the mixed batch of a step."""
        other = entries(context, batch.inputs)
        share = context.draws["share"].to(batch.inputs.dtype)
        inputs = mixture(share, batch.inputs, other.inputs)
        return Mixed(inputs, batch.targets, other.targets, share)
