"""A mixed batch and its loss, shared by all code that computes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from edgefed.config.recipes.class_weights import ClassWeights
from edgefed.learn.base.types import Batch, Context, Forward, Params
from edgefed.learn.directional.directional_derivative import along
from edgefed.learn.objectives.losses import Loss, mixture, soft
from edgefed.learn.steps import capabilities


@dataclass(frozen=True)
class Mixed:
    """A mixed batch U with its targets, and so the loss of a network f.

        (1-λ) ℓ(f(U), Y) + λ ℓ(f(U), Z) + factor · Σ_i < ∂ℓ(f(U), Y)/∂u_i , change >

    Attributes:
        inputs: U (batch, …).
        own: Y, labels (batch,) or soft targets (batch, classes).
        other: Z, likewise, or (1, classes) for the same ones for all samples; None where λ is 0.
        share: λ.
        change: a direction (1, …), the same for all samples; None for no third term.
        factor: of the third term.
    """

    inputs: torch.Tensor
    own: torch.Tensor
    other: torch.Tensor | None = None
    share: torch.Tensor | float = 0.0
    change: torch.Tensor | None = None
    factor: float = 0.0

    def own_for(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return Y, soft where it is mixed; ``outputs`` (…, classes) tell how many classes."""
        if self.other is None:
            return self.own
        return soft(self.own, self.other if self.other.is_floating_point() else outputs)

    def targets_for(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return (1-λ) Y + λ Z: ℓ is linear in its targets, so the first two terms are one."""
        if self.other is None:
            return self.own
        return mixture(self.share, self.own_for(outputs), soft(self.other, outputs))


class Mixing(ABC):
    """An objective that is the loss of its mixed batch, and no more.

    ``edgefed/learn/compiled/compiled_chain.py`` may compute that loss faster, unless a class
    defines its own
    ``__call__``.

    Attributes:
        loss: ℓ.
    """

    loss: Loss

    @property
    def class_weights(self) -> ClassWeights:
        """The weights that the loss needs; see ``capabilities``."""
        return capabilities.class_weights(self.loss)

    @abstractmethod
    def mixed(self, batch: Batch, context: Context) -> Mixed:
        """Return the mixed batch of a step."""

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss, in one forward pass."""
        mixed, loss = self.mixed(batch, context), self.loss
        if mixed.change is None:
            outputs = forward(params, mixed.inputs)
            return loss.of(outputs, loss.adjusted(mixed.targets_for(outputs), outputs, context))

        def slope(outputs: torch.Tensor) -> torch.Tensor:
            own = loss.adjusted(mixed.own_for(outputs), outputs, context)
            return loss.slope(outputs, own)

        outputs, derivative = along(forward, params, mixed.inputs, mixed.change, slope)
        targets = loss.adjusted(mixed.targets_for(outputs), outputs, context)
        return loss.of(outputs, targets) + mixed.factor * derivative
