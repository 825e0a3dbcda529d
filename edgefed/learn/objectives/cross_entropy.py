"""Cross-entropy against labels or soft targets, smoothed and weighted where the recipe says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from edgefed.config.recipes.class_weights import ClassWeights
from edgefed.learn.base.types import Batch, Context, Forward, Params
from edgefed.learn.objectives.losses import soft
from edgefed.learn.objectives.smoothing_and_weights import CLASS_WEIGHTS, adjusted


@dataclass(frozen=True)
class CrossEntropy:
    """The mean over the batch of -Σ_c y_c log softmax(logits)_c.

    ``y`` is one-hot for int64 targets (batch,), and the targets themselves for float targets
    (batch, classes). Smoothing and weights change them; see ``target_adjustment``.

    Attributes:
        label_smoothing: ε, at least 0 and below 1.
        class_weights: which weights; they are the extra ``class_weights``, which a trainer adds.
    """

    label_smoothing: float = 0.0
    class_weights: ClassWeights = "none"

    single_pass: ClassVar[bool] = True

    @property
    def is_plain(self) -> bool:
        """Whether targets stay as they are."""
        return not self.label_smoothing and self.class_weights == "none"

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss."""
        outputs = forward(params, batch.inputs)
        return self.of(outputs, self.adjusted(batch.targets, outputs, context))

    def adjusted(
        self, targets: torch.Tensor, outputs: torch.Tensor, context: Context
    ) -> torch.Tensor:
        """Return the targets that ``of`` and ``slope`` take: smoothed and weighted."""
        if self.is_plain:
            return targets
        weights = None if self.class_weights == "none" else context.extra[CLASS_WEIGHTS]
        return adjusted(targets, outputs, self.label_smoothing, weights)

    def of(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of logits (batch, classes) against targets as they are given."""
        return functional.cross_entropy(outputs, targets)

    def slope(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return its gradient with respect to the logits: (softmax · Σ_c y_c - y) / batch."""
        wanted = soft(targets, outputs)
        chance = functional.softmax(outputs, dim=-1)
        return (chance * wanted.sum(dim=-1, keepdim=True) - wanted) / len(outputs)
