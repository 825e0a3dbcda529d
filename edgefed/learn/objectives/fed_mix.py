"""FedMix: mixup with every sample of others, approximated from their averages alone.

Yoon, Shin, Hwang, Yang: FedMix: Approximation of Mixup under Mean Augmented Federated Learning,
ICLR 2021, proposition 1 and equation 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from edgefed.errors import UsageError
from edgefed.learn.base.types import Batch, Context
from edgefed.learn.objectives.averaged_entries import (
    check_ratio,
    entries,
)
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.entry_mixing import EntryMixing
from edgefed.learn.objectives.losses import Loss, mixture, soft
from edgefed.learn.objectives.mixing import Mixed

Taylor = Literal["lam", "lam(1-lam)"]
"""The factor of the third term: λ, as in equation 5, or λ (1-λ), as the paper's algorithm 2."""


Labels = Literal["own", "mixed"]
"""Whose labels the third term uses: the device's own, as in equation 5, or the mixture."""


@dataclass(frozen=True)
class FedMixObjective(EntryMixing):
    """(1-λ) ℓ(f(U), Y) + λ ℓ(f(U), ȳ) + λ Σ_i < ∂ℓ(f(U), Y)/∂u_i , x̄ >, with U = (1-λ) X.

    One entry (x̄, ȳ) of the extras is drawn for each batch. ℓ is a mean over the batch, so that the
    sum over the samples is a mean too and does not change when a batch is doubled. The third term
    uses the device's own labels only. The first two terms are one loss against (1-λ) Y + λ ȳ; see
    ``losses``. Three terms, one forward pass: they share the mask of dropout.

    At the minimum of the first two terms, softmax(f(U)) equals their mixed target. With own labels
    the third term still has a gradient there: it rewards outputs of x̄ that contradict its labels
    ȳ, by λ² and without bound. With mixed labels this gradient vanishes. ȳ's part of the Taylor
    expansion, of order λ² too, is then included as far as ȳ x̄ approximates the mean of y_j x_j.

    Attributes:
        ratio: λ from 0 to 1, the same at every step, and small: the omitted terms are of order λ²;
            0 is ℓ itself, bit for bit. The paper takes 0.05 for CIFAR-10, 0.1 for CIFAR-100, 0.2
            for FEMNIST.
        taylor: factor of the third term; both leave out terms of order λ² only.
        loss: ℓ.
        labels: in the third term; both leave out terms of order λ² only.
    """

    ratio: float
    taylor: Taylor = "lam"
    loss: Loss = field(default_factory=CrossEntropy)
    labels: Labels = "own"

    def __post_init__(self) -> None:
        check_ratio("FedMix", "ratio", self.ratio)
        if self.taylor not in get_args(Taylor):
            raise UsageError(
                f"FedMix has no factor {self.taylor!r} for its third term.",
                code="train.mixup",
                hint=f"choose taylor from {', '.join(get_args(Taylor))}",
            )
        if self.labels not in get_args(Labels):
            raise UsageError(
                f"FedMix has no labels {self.labels!r} for its third term.",
                code="train.mixup",
                hint=f"choose labels from {', '.join(get_args(Labels))}",
            )

    def mixed(self, batch: Batch, context: Context) -> Mixed:
        """Return the mixed batch of a step."""
        if self.ratio == 0:
            return Mixed(batch.inputs, batch.targets)
        other, ratio = entries(context, batch.inputs), self.ratio
        factor = ratio if self.taylor == "lam" else ratio * (1 - ratio)
        scaled = (1 - ratio) * batch.inputs
        if self.labels == "own":
            return Mixed(scaled, batch.targets, other.targets, ratio, other.inputs, factor)
        both = mixture(ratio, soft(batch.targets, other.targets), other.targets)
        return Mixed(scaled, both, change=other.inputs, factor=factor)
