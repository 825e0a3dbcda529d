"""NaiveMix: mixup with averaged data of others.

Yoon, Shin, Hwang, Yang: FedMix: Approximation of Mixup under Mean Augmented Federated Learning,
ICLR 2021, equation 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from edgefed.learn.base.types import Batch, Context
from edgefed.learn.objectives.averaged_entries import (
    check_ratio,
    entries,
)
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.entry_mixing import EntryMixing
from edgefed.learn.objectives.losses import Loss, mixture
from edgefed.learn.objectives.mixing import Mixed


@dataclass(frozen=True)
class NaiveMixObjective(EntryMixing):
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

    def mixed(self, batch: Batch, context: Context) -> Mixed:
        """Return the mixed batch of a step."""
        if self.ratio == 0:
            return Mixed(batch.inputs, batch.targets)
        other, ratio = entries(context, batch.inputs), self.ratio
        inputs = mixture(ratio, batch.inputs, other.inputs)
        return Mixed(inputs, batch.targets, other.targets, ratio)
