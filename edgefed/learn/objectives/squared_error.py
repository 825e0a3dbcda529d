"""Squared error, for regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from edgefed.errors import DataError
from edgefed.learn.base.types import Batch, Context, Forward, Params


@dataclass(frozen=True)
class SquaredError:
    """The mean over batch and outputs of (output - target)².

    Targets are floats of the outputs' shape: (batch, outputs).
    """

    single_pass: ClassVar[bool] = True

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss.

        Raises:
            DataError: the targets have another shape than the outputs.
        """
        return self.of(forward(params, batch.inputs), batch.targets)

    def adjusted(
        self, targets: torch.Tensor, outputs: torch.Tensor, context: Context
    ) -> torch.Tensor:
        """Return targets as they are."""
        del outputs, context
        return targets

    def of(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of outputs (batch, outputs).

        Raises:
            DataError: the targets have another shape than the outputs.
        """
        return functional.mse_loss(outputs, _checked(targets, outputs))

    def slope(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return its gradient with respect to the outputs.

        Raises:
            DataError: the targets have another shape than the outputs.
        """
        return (outputs - _checked(targets, outputs)) * (2 / outputs.numel())


def _checked(targets: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    """Return the targets, if there is one for every output."""
    if outputs.shape == targets.shape:
        return targets
    raise DataError(
        f"Squared error needs a target for every output {tuple(outputs.shape)},"
        f" but the targets are {tuple(targets.shape)}.",
        code="data.targets",
        hint="give float targets (samples, outputs), or train with cross-entropy",
    )
