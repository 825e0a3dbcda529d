"""Which update a schedule asks for, for one client and for a stack of them."""

from __future__ import annotations

from typing import Protocol

import torch

from edgefed.errors import UsageError
from edgefed.learn.adam import Adam
from edgefed.learn.sgd import Sgd
from edgefed.learn.stacked_optimizers import StackedAdam, StackedOptimizer, StackedSgd
from edgefed.learn.types import Params, Schedule


class LocalOptimizer(Protocol):
    """Moves weights; its state lasts for one job."""

    def step(self, weights: list[torch.Tensor], gradients: list[torch.Tensor]) -> None:
        """Move ``weights``, in place, against ``gradients``, which may be overwritten later."""
        ...


def optimizer_of(schedule: Schedule) -> LocalOptimizer:
    """Return a schedule's optimiser, without any state.

    Raises:
        UsageError: ``train.optimizer``: there is none like that.
    """
    check_optimizer(schedule)
    return Adam(schedule) if schedule.optimizer == "adam" else Sgd(schedule)


def stacked_optimizer_of(schedule: Schedule, weights: Params) -> StackedOptimizer:
    """Return a schedule's optimiser for a stack of clients, without any state.

    Args:
        schedule: the clients'.
        weights: what is trained, stacked (clients, …).

    Raises:
        UsageError: ``train.optimizer``: there is none like that.
    """
    check_optimizer(schedule)
    kind = StackedAdam if schedule.optimizer == "adam" else StackedSgd
    return kind(schedule, weights)


def check_optimizer(schedule: Schedule) -> None:
    """Check that a schedule's optimiser exists and takes its settings.

    Raises:
        UsageError: ``train.optimizer``.
    """
    if schedule.optimizer not in ("sgd", "adam"):
        raise UsageError(
            f"There is no local optimiser {schedule.optimizer!r}.",
            code="train.optimizer",
            hint="choose sgd or adam",
        )
    if schedule.optimizer == "adam" and schedule.momentum:
        raise UsageError(
            f"Adam has no momentum of {schedule.momentum:g}; beta1 takes its place.",
            code="train.optimizer",
            hint='set training.momentum = 0, or training.optimizer = "sgd"',
        )
