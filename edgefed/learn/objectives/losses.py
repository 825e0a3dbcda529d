"""Losses for mixing: a value, a gradient at the outputs, and linearity in the targets.

Cross-entropy is linear in its targets, so a loss against a mixture of targets is the mixture of the
losses: (1-λ) ℓ(f, y) + λ ℓ(f, z) = ℓ(f, (1-λ) y + λ z), computed once. For squared error the two
differ by λ (1-λ) (y - z)², which does not depend on the weights: |f|² - 2 f·y, the same loss
without the constant |y|², is linear in y. The gradients are equal.
"""

from __future__ import annotations

from typing import Protocol

import torch

from edgefed.learn.base.types import Context


class Loss(Protocol):
    """A mean over the batch of a loss of outputs and targets."""

    def adjusted(
        self, targets: torch.Tensor, outputs: torch.Tensor, context: Context
    ) -> torch.Tensor:
        """Return the targets that ``of`` and ``slope`` take, such as smoothed ones.

        It is linear in soft targets: the result for a mixture is the mixture of the results.
        """
        ...

    def of(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the scalar loss of outputs (batch, …)."""
        ...

    def slope(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return its gradient with respect to the outputs, of their shape."""
        ...


def soft(targets: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    """Return targets for each class of ``outputs`` (…, classes): labels (…,) become one-hot."""
    if targets.is_floating_point():
        return targets
    classes = torch.arange(outputs.shape[-1], device=targets.device)
    return (targets.unsqueeze(-1) == classes).to(outputs.dtype)


def mixture(share: torch.Tensor | float, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return (1 - share) · one + share · other."""
    return (1 - share) * one + share * other
