"""Carry a recurrent model's state from batch to batch, as in training on consecutive text.

Row b of a batch begins with the state in which row b of the batch before it ended. The state is
detached, so gradients do not flow from one batch into another.
"""

from __future__ import annotations

from typing import Protocol, cast, runtime_checkable

import torch
from torch import nn
from torch.func import functional_call

from edgefed.learn.base.types import Params

State = tuple[torch.Tensor, ...]
"""A recurrent state: tensors (batch, …), such as the hidden and the cell state of each layer. An
empty one is the state at the beginning, usually of zeros."""


@runtime_checkable
class Recurrent(Protocol):
    """A module that can begin with a state, and returns the one in which it ends."""

    def forward_with_state(self, inputs: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """Return the scores (batch, classes), and the state after the last token.

        Each sample's state depends on that sample only. An empty state gives the same scores as
        ``forward``.
        """
        ...


class CarriedState:
    """A recurrent module as a function that is pure except for the state it carries.

    Args:
        module: the module; names of weights in ``params`` are its own.
        names: of the weights that it is lent; ``params`` may hold others.
    """

    def __init__(self, module: nn.Module, names: tuple[str, ...]) -> None:
        self._module = _WithState(module)
        self._names = names
        self._state: State = ()

    def reset(self) -> None:
        """Begin with an empty state again, as every epoch does."""
        self._state = ()

    def __call__(self, params: Params, inputs: torch.Tensor) -> torch.Tensor:
        """Return the scores (batch, classes), and keep the state; a smaller batch is the last."""
        own = {f"module.{name}": params[name] for name in self._names if name in params}
        before = tuple(part[: len(inputs)] for part in self._state)
        scores, after = functional_call(self._module, own, (inputs, before))
        self._state = tuple(part.detach() for part in after)
        return cast(torch.Tensor, scores)


class _WithState(nn.Module):
    """A recurrent module whose forward pass takes and returns a state."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """Return the scores, and the state after the last token."""
        return cast(Recurrent, self.module).forward_with_state(inputs, state)
