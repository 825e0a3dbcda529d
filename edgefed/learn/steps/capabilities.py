"""Optional parts of an objective beside its loss: draws, requirements, updates and assignments.

An objective that defines none of these, such as a plain function, draws nothing, accepts any model,
and makes one update of all trained weights per step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol, cast, runtime_checkable

import numpy as np
import torch

from edgefed.config.recipes.class_weights import ClassWeights
from edgefed.learn.base.types import Array, Batch, Context, Forward, Job, Objective, Params
from edgefed.learn.modeling.model import Model
from edgefed.seeds import generator


@dataclass(frozen=True)
class Phase:
    """One update of weights; a step consists of one or more, in order, on the same batch.

    Attributes:
        objective: the loss that the update lowers.
        trained: names of the weights that it changes.
    """

    objective: Objective
    trained: tuple[str, ...]


@runtime_checkable
class Draws(Protocol):
    """An objective that needs random numbers: one draw a step, into ``Context.draws``."""

    def draw(
        self, generator: np.random.Generator, size: int, extra: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the draws for a batch of ``size`` samples; ``extra`` holds the job's extras.

        Shapes and dtypes depend on ``size`` only.
        """
        ...


@runtime_checkable
class Checks(Protocol):
    """An objective that not every model and not all extras are good enough for."""

    def check(self, model: Model, extra: Mapping[str, Array]) -> None:
        """Check before training.

        Raises:
            DataError: this model cannot be trained with these extras.
        """
        ...


@runtime_checkable
class Phased(Protocol):
    """An objective that makes more than one update a step."""

    def phases(self, model: Model, trained: tuple[str, ...]) -> tuple[Phase, ...]:
        """Return the updates of a step.

        Args:
            model: the model in training.
            trained: names of the weights that the job trains; no phase moves others.
        """
        ...


@runtime_checkable
class Assigns(Protocol):
    """An objective that sets some of a job's variables by a formula in each step, not by descent.

    Attributes:
        assigned: their names.
    """

    assigned: tuple[str, ...]

    def loss_and_values(
        self, forward: Forward, params: Params, batch: Batch, context: Context
    ) -> tuple[torch.Tensor, Params]:
        """Return the scalar loss, and the values of the assigned variables after the step."""
        ...


def is_single_pass(objective: Objective) -> bool:
    """Return whether an objective calls the model once per step, on the inputs of the batch.

    It says so itself, by an attribute ``single_pass``. Only then can a recurrent state be carried
    from batch to batch.
    """
    return bool(getattr(objective, "single_pass", False))


def class_weights(objective: object) -> ClassWeights:
    """Return the class weights that an objective's loss needs among the job's extras.

    The objective's attribute ``class_weights`` names them; the trainer computes them from the
    samples that the job trains on. An objective around another one passes on the inner one's
    attribute.
    """
    return cast(ClassWeights, getattr(objective, "class_weights", "none"))


def objective_generator(job: Job) -> np.random.Generator:
    """Return the generator that a job's objective draws from, step after step."""
    return generator(job.seed, "objective")


def draw(
    objective: Objective, numbers: np.random.Generator, size: int, extra: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the draws of ``objective`` for a batch of ``size`` samples."""
    if not _draws(type(objective)):
        return {}
    return cast(Draws, objective).draw(numbers, size, extra)


@cache
def _draws(kind: type[Objective]) -> bool:
    """Return whether objectives of a kind draw; asked at every step, and slow to find out."""
    return hasattr(kind, "draw")


def check(objective: Objective, model: Model, extra: Mapping[str, Array]) -> None:
    """Let ``objective`` check the model and the extras.

    Raises:
        DataError: they do not suit it.
    """
    if isinstance(objective, Checks):
        objective.check(model, extra)


def loss_and_values(
    objective: Objective, forward: Forward, params: Params, batch: Batch, context: Context
) -> tuple[torch.Tensor, Params]:
    """Return an objective's loss, and the new values of variables that it assigns."""
    if not _assigns(type(objective)):
        return objective(forward, params, batch, context), {}
    return cast(Assigns, objective).loss_and_values(forward, params, batch, context)


def assigned(objective: Objective) -> tuple[str, ...]:
    """Return the names of the variables that ``objective`` assigns."""
    return cast(Assigns, objective).assigned if _assigns(type(objective)) else ()


@cache
def _assigns(kind: type[Objective]) -> bool:
    """Return whether objectives of a kind assign variables; asked at every step."""
    return hasattr(kind, "loss_and_values")


def phases(objective: Objective, model: Model, trained: tuple[str, ...]) -> tuple[Phase, ...]:
    """Return the updates that ``objective`` makes in a step."""
    if isinstance(objective, Phased):
        return objective.phases(model, trained)
    return (Phase(objective, trained),)
