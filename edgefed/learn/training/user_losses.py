"""Users' own losses: a function of outputs and targets, by the name ``package.module:function``.

It is called as ``function(outputs, targets)`` with the model's outputs (batch, classes) and the
batch's targets, int64 labels (batch,) or floats (batch, classes). It returns a loss for each sample
(batch,), or their mean as a scalar, that torch can differentiate with respect to the outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import torch

from edgefed.errors import DataError, EdgeFedError
from edgefed.files.user_code import FAILED, error_line, imported
from edgefed.learn.base.types import Array, Batch, Context, Forward, Params

HINT = "it is called as function(outputs, targets) and returns a loss per sample, or their mean"


def is_user_loss(name: str) -> bool:
    """Return whether a loss's name means a user's own code."""
    return ":" in name


@dataclass(frozen=True)
class UserLoss:
    """The mean over the batch of a user's own loss.

    The caller checks first that this program allows users' code.

    Attributes:
        name: the function's.
    """

    single_pass: ClassVar[bool] = True
    name: str

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss."""
        return self.of(forward(params, batch.inputs), batch.targets)

    def of(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the scalar loss of outputs (batch, …).

        Raises:
            RecipeError: there is no such function.
            DataError: ``loss.failed`` or ``loss.output``: it fails, or returns another kind of
                value.
        """
        function = _function(self.name)
        try:
            loss = function(outputs, targets)
        except EdgeFedError:
            raise
        except FAILED as error:
            raise DataError(
                f"The loss {self.name} failed: {error_line(error)}.", code="loss.failed", hint=HINT
            ) from error
        if not isinstance(loss, torch.Tensor) or not loss.is_floating_point():
            raise self._unusable(type(loss).__name__)
        if loss.shape not in ((), outputs.shape[:1]):
            raise self._unusable(f"a tensor {tuple(loss.shape)}")
        return loss.mean()

    def _unusable(self, what: str) -> DataError:
        return DataError(
            f"The loss {self.name} returns {what}, neither a loss per sample nor their mean.",
            code="loss.output",
            hint=HINT,
        )


@cache
def _function(name: str) -> Callable[..., Any]:
    return imported("loss", name)


def try_out_loss(name: str, outputs: int, targets: Array | None) -> None:
    """Check that a user's loss can be trained, on the outputs of an untrained model.

    Args:
        name: the function's, which is imported.
        outputs: number of the model's outputs.
        targets: of a few samples; None where none are known, and the function is only imported.

    Raises:
        RecipeError: there is no such function.
        DataError: it fails, returns another kind of value, or cannot be differentiated.
    """
    loss = UserLoss(name)
    if targets is None or not len(targets):
        _function(name)
        return
    zeros = torch.zeros(len(targets), outputs, requires_grad=True)
    value = loss.of(zeros, torch.tensor(targets))
    if not value.requires_grad:
        raise DataError(
            f"The loss {name} cannot be differentiated.",
            code="loss.output",
            hint="compute it of the outputs by operations of torch, without detach or item",
        )
