"""The number of samples of each label on a client, which calibrated losses use as weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from edgefed.errors import DataError
from edgefed.learn.base.types import Array, Context, Samples
from edgefed.learn.modeling.model import Model

COUNTS = "label_counts"
"""The extra that holds them: float32 (classes,)."""


def label_counts(samples: Samples, classes: int, real: int | None = None) -> Array:
    """Return the samples of each label, float32 (classes,); shares of labels are summed.

    Args:
        samples: a client's.
        classes: number of labels.
        real: how many of the samples, from the first, are the client's own; those behind them, such
            as mixes of others and noise, are not counted. None to count all.

    Raises:
        DataError: ``train.label_counts``: a label is none of the classes.
    """
    targets = samples.targets[:real]
    if not samples.has_labels:
        return np.asarray(targets.sum(axis=0, dtype=np.float64), np.float32)
    if len(targets) and not 0 <= targets.min() <= targets.max() < classes:
        raise _refused(f"its labels range from {targets.min()} to {targets.max()}")
    return np.bincount(targets, minlength=classes).astype(np.float32)


def counts_of(context: Context, like: torch.Tensor) -> torch.Tensor:
    """Return the counts among a job's extras, in ``like``'s kind of number."""
    return context.extra[COUNTS].to(like.dtype)


def check_counts(model: Model, extra: Mapping[str, Array]) -> Array:
    """Return the counts among a job's extras, checked.

    Raises:
        DataError: ``train.label_counts``.
    """
    counts = extra.get(COUNTS)
    if counts is None or counts.shape != (model.classes,):
        raise _refused(f"there is not one number for each of {model.classes} labels")
    if not (np.isfinite(counts).all() and counts.min() >= 0 and counts.max() > 0):
        raise _refused("they are not counts of any samples")
    return counts


def _refused(why: str) -> DataError:
    return DataError(
        f"The numbers of samples of each label cannot be used: {why}.",
        code="train.label_counts",
        hint="give the device samples with labels of the run's classes",
    )
