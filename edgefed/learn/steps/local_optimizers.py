"""Which update a schedule asks for, for one client and for a stack of them."""

from __future__ import annotations

from typing import Protocol

import torch

from edgefed.errors import UsageError
from edgefed.learn.base.types import Params, Schedule
from edgefed.learn.steps.adam import Adam
from edgefed.learn.steps.sgd import Sgd
from edgefed.learn.steps.stacked_optimizers import StackedAdam, StackedOptimizer, StackedSgd


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
