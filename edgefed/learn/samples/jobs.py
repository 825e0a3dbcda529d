"""Steps that all trainers share: check a job, load its arrays, return its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np
import torch

from edgefed.errors import DIVERGED, LOWER_RATE, DataError, UsageError
from edgefed.files.mapped import release
from edgefed.learn.base.augment import check_augment
from edgefed.learn.base.transfers import is_remote, upload_all
from edgefed.learn.base.types import Array, Job, Params, Samples, Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.smoothing_and_weights import CLASS_WEIGHTS, class_weights
from edgefed.learn.steps import capabilities


def check_job(model: Model, job: Job, count: int) -> tuple[str, ...]:
    """Return the names of all that a job trains: weights in the model's order, then its variables.

    Variables that the objective assigns are not among them.

    Args:
        model: the model in training.
        job: the job.
        count: number of training samples.

    Raises:
        DataError: the job cannot be done with this model and so many samples.
    """
    if not count:
        raise DataError(
            "There are no samples to train on.",
            code="data.empty",
            hint="give this device data, or exclude it from training",
        )
    model.check(job.weights)
    if job.augment is not None:
        check_augment(job.augment, model.shape)
    if model.has_batch_norm and min(count, job.schedule.batch_size) == 1:
        raise DataError(
            "Batch normalisation cannot train on a batch of one sample.",
            code="train.batch_norm",
            hint="raise batch_size, give the device more samples, or choose group normalisation",
        )
    if job.schedule.carry_state:
        _check_carried(model, job)
    capabilities.check(job.objective, model, job.extra)
    return _trained(model, job)


def _check_carried(model: Model, job: Job) -> None:
    """Check that the model has a state, and that the objective lets it be carried."""
    reason = model.why_not_carry()
    if not reason and not capabilities.is_single_pass(job.objective):
        reason = "its objective calls the model more than once per step, or on other inputs"
    if reason:
        raise DataError(
            f"A recurrent state cannot be carried from batch to batch: {reason}.",
            code="train.carry_state",
            hint="set training.carry_state = false",
        )


def _trained(model: Model, job: Job) -> tuple[str, ...]:
    """Return the names of the weights and variables that are trained."""
    taken = sorted(job.variables.keys() & set(model.names))
    if taken:
        raise DataError(
            f"The job's variable {taken[0]} has the name of a weight of the model.",
            code="train.variables",
            hint="give variables names that the model does not have",
        )
    unknown = sorted(job.frozen - set(model.names))
    if unknown:
        raise DataError(
            f"The job freezes {unknown[0]}, which the model does not have.",
            code="train.frozen",
            hint=f"weights of the model: {', '.join(model.names)}",
        )
    trained = tuple(name for name in model.parameter_names if name not in job.frozen)
    if not trained and not job.variables:
        raise DataError(
            "The job freezes every weight of the model, so there is nothing to train.",
            code="train.frozen",
            hint="do not freeze all weights",
        )
    assigned = capabilities.assigned(job.objective)
    return (*trained, *(name for name in job.variables if name not in assigned))


def samples_of(job: Job, own: Samples) -> Samples:
    """Return the samples that a job trains on: its own, or else the device's ``own``."""
    return own if job.samples is None else job.samples


def with_class_weights(model: Model, job: Job, samples: Samples) -> Job:
    """Return a job with the class weights that its loss needs, computed from its samples.

    Raises:
        RecipeError: there is not one weight for each class.
        DataError: a label is none of the classes.
    """
    choice = capabilities.class_weights(job.objective)
    if choice == "none":
        return job
    weights = class_weights(choice, samples, model.classes)
    return replace(job, extra={**job.extra, CLASS_WEIGHTS: weights})


def load_variables(job: Job, device: torch.device) -> Params:
    """Return a copy of a job's variables on the device."""
    names = list(job.variables)
    own = [torch.tensor(job.variables[name]) for name in names]
    return dict(zip(names, _apart(own, device), strict=True))


def load(model: Model, weights: Tensors, device: torch.device) -> Params:
    """Return a copy of ``weights`` on the device, in the model's own kinds of numbers."""
    state = model.module.state_dict()
    own: list[torch.Tensor] = []
    for name in model.names:
        own.append(torch.tensor(weights[name], dtype=state[name].dtype))
        release(weights[name])  # until then, a mapped one takes memory
    return dict(zip(model.names, _apart(own, device), strict=True))


def _apart(own: Sequence[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """Return tensors on the device, each with memory of its own, aligned for its kernels."""
    moved = upload_all(own, device, "weights")
    return [part.clone() for part in moved] if is_remote(device) else moved


def finished(job: Job, after: Mapping[str, Array]) -> Tensors:
    """Return a job's weights after training; frozen weights are unchanged.

    Raises:
        DataError: ``train.diverged``.
    """
    weights = {
        name: np.array(before) if name in job.frozen else after[name]
        for name, before in job.weights.items()
    }
    if not all(np.isfinite(array).all() for array in weights.values()):
        raise diverged("the weights are")
    return weights


def finished_variables(job: Job, after: Mapping[str, Array]) -> Tensors:
    """Return a job's variables after training.

    Raises:
        DataError: ``train.diverged``.
    """
    variables = {name: after[name] for name in job.variables}
    if not all(np.isfinite(array).all() for array in variables.values()):
        raise diverged("the variables are")
    return variables


def precision(name: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which an objective is computed.

    Raises:
        UsageError: there is no such precision.
    """
    if name == "fp32":
        return nullcontext()
    if name == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    raise UsageError(
        f"There is no training precision {name!r}.",
        code="train.precision",
        hint="set precision to fp32 or bf16",
    )


def diverged(what: str) -> DataError:
    """Return the error of training that left the finite numbers."""
    return DataError(
        f"{DIVERGED}: {what} no longer finite.", code="train.diverged", hint=LOWER_RATE
    )
