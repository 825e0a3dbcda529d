"""Cross-entropy against labels or soft targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from edgefed.learn.objectives.losses import soft
from edgefed.learn.types import Batch, Context, Forward, Params


@dataclass(frozen=True)
class CrossEntropy:
    """The mean over the batch of -Σ_c y_c log softmax(logits)_c.

    ``y`` is one-hot for int64 targets (batch,), and the targets themselves for float targets
    (batch, classes).
    """

    single_pass: ClassVar[bool] = True

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss."""
        return self.of(forward(params, batch.inputs), batch.targets)

    def of(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of logits (batch, classes)."""
        return functional.cross_entropy(outputs, targets)

    def slope(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return its gradient with respect to the logits: (softmax · Σ_c y_c - y) / batch."""
        wanted = soft(targets, outputs)
        chance = functional.softmax(outputs, dim=-1)
        return (chance * wanted.sum(dim=-1, keepdim=True) - wanted) / len(outputs)
