"""Types of the learning core: tensors, batches, schedules, jobs and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy.typing as npt

from edgefed.evaluation.confusion import Confusion
from edgefed.files.samples import Samples as Samples  # noqa: PLC0414 - part of this module's words
from edgefed.learn.base.rate_schedule import RateSchedule

if TYPE_CHECKING:  # commands that only read states name these types without torch
    import torch

    from edgefed.learn.base.augment import Augment

Array = npt.NDArray[Any]
"""An array on the host."""

Tensors = dict[str, Array]
"""Named arrays on the host: weights, deltas, optimiser memory. Order is the model's."""

Params: TypeAlias = "dict[str, torch.Tensor]"
"""Named tensors on the training device."""

Forward: TypeAlias = "Callable[[Params, torch.Tensor], torch.Tensor]"
"""The model as a pure function: parameters and inputs (batch, …) to logits (batch, classes)."""


def _no_rows() -> torch.Tensor:
    import torch

    return torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True)
class Batch:
    """A mini-batch on the training device.

    Attributes:
        inputs: float tensor (batch, …), or int64 for tokens.
        targets: int64 labels (batch,), or float targets (batch, classes).
        rows: int64 (batch,), the samples' numbers among the job's samples, by which an objective
            finds each sample's part of an extra; empty where the batch is not of the job.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    rows: torch.Tensor = field(default_factory=_no_rows)


@dataclass(frozen=True)
class Context:
    """Inputs of an objective beside parameters and batch.

    Attributes:
        anchor: the weights that training started from, of those that are trained: no buffer, and
            nothing frozen.
        extra: arrays that the algorithm added, such as averaged data, on the training device.
        draws: the objective's draws for this step; see ``capabilities.Draws``.
    """

    anchor: Params
    extra: Mapping[str, torch.Tensor] = field(default_factory=dict)
    draws: Mapping[str, torch.Tensor] = field(default_factory=dict)


class Objective(Protocol):
    """A pure local objective: no state, no draw, differentiable in ``params``.

    It may be computed for many clients at once under ``torch.func.vmap``: derivatives inside it are
    taken with ``torch.func``, and no value is turned into a Python number. ``capabilities`` lists
    the optional parts of an objective.
    """

    def __call__(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> torch.Tensor:
        """Return the scalar loss, a mean over the batch."""
        ...


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train; see the recipe's training section.

    Attributes:
        learning_rate: at the factor 1 of ``rates``.
        rates: how the rate changes over the job's steps.
    """

    epochs: int = 1
    batch_size: int = 16
    learning_rate: float = 0.05
    momentum: float = 0.0
    weight_decay: float = 0.0
    max_steps: int = 0
    precision: str = "fp32"
    optimizer: str = "sgd"
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    carry_state: bool = False
    nesterov: bool = False
    max_gradient_norm: float = 0.0
    rates: RateSchedule = field(default_factory=RateSchedule)

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, counted from 0, of so many."""
        if self.rates.is_constant:
            return self.learning_rate
        return self.learning_rate * self.rates.factor(step, steps)


@dataclass(frozen=True)
class Job:
    """One piece of local training, pure in its inputs.

    Attributes:
        weights: where training starts.
        objective: the loss to minimise.
        schedule: how long and how fast.
        seed: of the shuffle, of dropout, of augmentation and of the objective's draws.
        extra: arrays for the objective's context; they stay as they are for as long as they live,
            and are put on the training device once.
        frozen: names of weights that stay as they are.
        augment: augmentation of the images of each batch; None for none.
        variables: arrays that are trained beside the weights, by names that the model does not
            have. The objective finds them among ``params``; they are not part of the anchor.
        samples: the training samples, where the algorithm makes them; None for the device's own.
    """

    weights: Tensors
    objective: Objective
    schedule: Schedule
    seed: int
    extra: Mapping[str, Array] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    augment: Augment | None = None
    variables: Tensors = field(default_factory=dict)
    samples: Samples | None = None


@dataclass(frozen=True)
class Trained:
    """The result of a job.

    Attributes:
        weights: after training, same names and shapes as the job's.
        samples: number of samples that were trained on.
        steps: steps taken.
        loss: mean objective over the last epoch's batches, weighted by their sizes.
        variables: the job's variables after training, same names and shapes.
    """

    weights: Tensors
    samples: int
    steps: int
    loss: float
    variables: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """A test: mean loss and share of right answers over ``samples`` samples.

    Over no samples both are 0. Where the loss is squared error there is no share: None.

    Attributes:
        top_k_hits: samples whose label is among those of the k largest outputs.
        confusion: samples by true and predicted label. Both are None where they are not measured.
        fractions: numerator and denominator of each of the users' own metrics, by name.
        before: the score before the device fine-tuned the model; None where it did not.
    """

    loss: float
    accuracy: float | None
    samples: int
    top_k_hits: int | None = None
    confusion: Confusion | None = None
    fractions: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    before: Score | None = None
