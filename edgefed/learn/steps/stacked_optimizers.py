"""The updates of local training for a stack of clients, of which each step moves some."""

from __future__ import annotations

from typing import Protocol

import torch

from edgefed.learn.base.types import Params, Schedule

Rate = float | torch.Tensor
"""A learning rate: one for all clients, or float64 (some clients,)."""

Who = slice | torch.Tensor
"""Which clients of the stack: a slice where it can be, so that they are changed in place."""


class StackedOptimizer(Protocol):
    """Moves the weights of some clients; its state lasts for one job."""

    def step(
        self, who: Who, weights: list[torch.Tensor], gradients: list[torch.Tensor], rate: Rate
    ) -> None:
        """Move ``weights`` (some clients, …), in place, against ``gradients``."""
        ...


class StackedSgd:
    """``Sgd`` for a stack.

    Args:
        schedule: the clients'.
        weights: the trained weights, stacked (clients, …).
    """

    def __init__(self, schedule: Schedule, weights: Params) -> None:
        self._schedule = schedule
        kept = weights.values() if schedule.momentum else ()
        self._velocity = [torch.zeros_like(part) for part in kept]

    @torch.no_grad()
    def step(
        self, who: Who, weights: list[torch.Tensor], gradients: list[torch.Tensor], rate: Rate
    ) -> None:
        """Move ``weights`` (some clients, …), in place, against ``gradients``."""
        schedule = self._schedule
        gradients = _decayed(schedule, weights, gradients)
        if schedule.momentum:
            velocity = [part[who] for part in self._velocity]
            torch._foreach_mul_(velocity, schedule.momentum)
            torch._foreach_add_(velocity, gradients)
            _put_back(self._velocity, who, velocity)
            gradients = self._direction(velocity, gradients)
        if not isinstance(rate, torch.Tensor):
            torch._foreach_add_(weights, gradients, alpha=-rate)
            return
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.sub_(gradient * _along(rate, weight))

    def _direction(
        self, velocity: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return the direction of the step: the velocity, or Nesterov's."""
        if not self._schedule.nesterov:
            return velocity
        return list(torch._foreach_add(gradients, velocity, alpha=self._schedule.momentum))


class StackedAdam:
    """``Adam``, or AdamW, for a stack: clients count their own steps.

    Args:
        schedule: the clients'.
        weights: the trained weights, stacked (clients, …).
    """

    def __init__(self, schedule: Schedule, weights: Params) -> None:
        self._schedule = schedule
        self._first = [torch.zeros_like(part) for part in weights.values()]
        self._second = [torch.zeros_like(part) for part in weights.values()]
        some = next(iter(weights.values()))
        # float64, as a single client's numbers are Python's
        self._steps = torch.zeros(len(some), dtype=torch.float64, device=some.device)

    @torch.no_grad()
    def step(
        self, who: Who, weights: list[torch.Tensor], gradients: list[torch.Tensor], rate: Rate
    ) -> None:
        """Move ``weights`` (some clients, …), in place, against ``gradients``."""
        schedule = self._schedule
        if schedule.optimizer == "adamw":
            _shrink(weights, schedule.weight_decay, rate)
        else:
            gradients = _decayed(schedule, weights, gradients)
        self._steps[who] += 1
        steps = self._steps[who]
        first, second = ([part[who] for part in kept] for kept in (self._first, self._second))
        torch._foreach_lerp_(first, gradients, 1 - schedule.beta1)
        torch._foreach_mul_(second, schedule.beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - schedule.beta2)
        _put_back(self._first, who, first)
        _put_back(self._second, who, second)
        lengths = -rate / (1 - schedule.beta1**steps)
        spreads = (1 - schedule.beta2**steps).sqrt()
        for weight, mean, square in zip(weights, first, second, strict=True):
            length, spread = (_along(part, weight) for part in (lengths, spreads))
            root = square.sqrt().div_(spread).add_(schedule.epsilon)
            weight.add_(mean / root * length)


def _along(numbers: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return a number of each client (some clients,) in the kind and dimensions of a weight."""
    return numbers.to(weight.dtype).reshape(-1, *[1] * (weight.dim() - 1))


def _shrink(weights: list[torch.Tensor], decay: float, rate: Rate) -> None:
    """Multiply weights by 1 - rate · decay, in place: AdamW's weight decay."""
    if not decay:
        return
    kept = 1 - rate * decay
    for weight in weights:
        weight.mul_(_along(kept, weight) if isinstance(kept, torch.Tensor) else kept)


def _decayed(
    schedule: Schedule, weights: list[torch.Tensor], gradients: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Return gradients with the weight decay added."""
    if not schedule.weight_decay:
        return gradients
    return list(torch._foreach_add(gradients, weights, alpha=schedule.weight_decay))


def _put_back(kept: list[torch.Tensor], who: Who, changed: list[torch.Tensor]) -> None:
    """Store the changes of some clients that were not made in place."""
    if not isinstance(who, slice):
        for part, some in zip(kept, changed, strict=True):
            part[who] = some
