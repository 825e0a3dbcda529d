"""The steps of local optimisers: SGD with momentum and weight decay, Adam and AdamW.

``torch.optim`` is not used, because creating the first optimiser of a process takes over a second.
Kingma, Ba: Adam: A Method for Stochastic Optimization, ICLR 2015. Loshchilov, Hutter: Decoupled
Weight Decay Regularization, ICLR 2019.
"""

from __future__ import annotations

from typing import Protocol

import torch

from edgefed.errors import UsageError
from edgefed.learn.base.types import Params, Schedule
from edgefed.learn.steps.stacked_optimizers import StackedAdam, StackedOptimizer, StackedSgd


class Sgd:
    """Gradient descent with heavy-ball momentum: v ← m v + g, w ← w - η v.

    g includes the weight decay d w. η is the learning rate, m the momentum; v starts at zero. With
    Nesterov's momentum w ← w - η (g + m v).
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._velocity: list[torch.Tensor] = []

    @torch.no_grad()
    def step(self, weights: list[torch.Tensor], gradients: list[torch.Tensor], rate: float) -> None:
        """Move ``weights``, in place, against ``gradients`` with a learning rate."""
        schedule = self._schedule
        if schedule.weight_decay:
            gradients = list(torch._foreach_add(gradients, weights, alpha=schedule.weight_decay))
        if schedule.momentum:
            gradients = self._momentum(gradients)
        torch._foreach_add_(weights, gradients, alpha=-rate)

    def _momentum(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the direction of the step: the velocity after ``gradients``, or Nesterov's."""
        if not self._velocity:
            # A copy, since gradients may be overwritten after the step
            self._velocity = [gradient.clone() for gradient in gradients]
        else:
            torch._foreach_mul_(self._velocity, self._schedule.momentum)
            torch._foreach_add_(self._velocity, gradients)
        if self._schedule.nesterov:
            return list(
                torch._foreach_add(gradients, self._velocity, alpha=self._schedule.momentum)
            )
        return self._velocity


class Adam:
    """m ← β1 m + (1 - β1) g,  v ← β2 v + (1 - β2) g²,  w ← w - η m̂ / (√v̂ + ε).

    g includes the weight decay d w; with AdamW it does not, and w ← (1 - η d) w before the step. m̂
    and v̂ are divided by 1 - β1^t and 1 - β2^t in step t; both moments start at zero.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._first: list[torch.Tensor] = []
        self._second: list[torch.Tensor] = []
        self._steps = 0

    @torch.no_grad()
    def step(self, weights: list[torch.Tensor], gradients: list[torch.Tensor], rate: float) -> None:
        """Move ``weights``, in place, against ``gradients`` with a learning rate."""
        schedule = self._schedule
        if not self._first:
            self._first = [torch.zeros_like(weight) for weight in weights]
            self._second = [torch.zeros_like(weight) for weight in weights]
        self._steps += 1
        if schedule.weight_decay and schedule.optimizer == "adamw":
            torch._foreach_mul_(weights, 1 - rate * schedule.weight_decay)
        elif schedule.weight_decay:
            gradients = list(torch._foreach_add(gradients, weights, alpha=schedule.weight_decay))
        torch._foreach_lerp_(self._first, gradients, 1 - schedule.beta1)
        torch._foreach_mul_(self._second, schedule.beta2)
        torch._foreach_addcmul_(self._second, gradients, gradients, 1 - schedule.beta2)
        # m̂ is in the length of the step; √v̂ is √v divided by the spread
        length = rate / (1 - schedule.beta1**self._steps)
        spread = float((1 - schedule.beta2**self._steps) ** 0.5)
        for weight, first, second in zip(weights, self._first, self._second, strict=True):
            root = second.sqrt().div_(spread).add_(schedule.epsilon)
            weight.addcdiv_(first, root, value=-length)


class LocalOptimizer(Protocol):
    """Moves weights; its state lasts for one job."""

    def step(self, weights: list[torch.Tensor], gradients: list[torch.Tensor], rate: float) -> None:
        """Move ``weights``, in place, against ``gradients``, which may be overwritten later.

        Args:
            weights: the trained weights.
            gradients: in the same order.
            rate: the learning rate of this step.
        """
        ...


def optimizer_of(schedule: Schedule) -> LocalOptimizer:
    """Return a schedule's optimiser, without any state.

    Raises:
        UsageError: ``train.optimizer``: there is no such optimiser.
    """
    check_optimizer(schedule)
    return Sgd(schedule) if schedule.optimizer == "sgd" else Adam(schedule)


def stacked_optimizer_of(schedule: Schedule, weights: Params) -> StackedOptimizer:
    """Return a schedule's optimiser for a stack of clients, without any state.

    Args:
        schedule: the clients'.
        weights: the trained weights, stacked (clients, …).

    Raises:
        UsageError: ``train.optimizer``: there is no such optimiser.
    """
    check_optimizer(schedule)
    kind = StackedSgd if schedule.optimizer == "sgd" else StackedAdam
    return kind(schedule, weights)


def check_optimizer(schedule: Schedule) -> None:
    """Check that a schedule's optimiser exists and takes its settings.

    Raises:
        UsageError: ``train.optimizer``.
    """
    if schedule.optimizer not in ("sgd", "adam", "adamw"):
        raise UsageError(
            f"There is no local optimiser {schedule.optimizer!r}.",
            code="train.optimizer",
            hint="choose sgd, adam or adamw",
        )
    if schedule.optimizer == "sgd":
        if schedule.nesterov and not schedule.momentum:
            raise UsageError(
                "Nesterov's momentum needs a momentum above 0.",
                code="train.optimizer",
                hint="set training.momentum, or training.nesterov = false",
            )
        return
    name = "Adam" if schedule.optimizer == "adam" else "AdamW"
    if schedule.momentum or schedule.nesterov:
        what = f"momentum of {schedule.momentum:g}" if schedule.momentum else "Nesterov's momentum"
        raise UsageError(
            f"{name} has no {what}; beta1 takes its place.",
            code="train.optimizer",
            hint='set training.optimizer = "sgd", or leave out training.momentum and nesterov',
        )
