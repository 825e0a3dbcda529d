"""Scale a device's images as its run does: by the mean and deviation that all devices share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgefed.data.base.preparation import normalized
from edgefed.data.base.types import Array, Preparation
from edgefed.errors import DataError
from edgefed.files.samples import PixelScale, Samples

ROUNDING = 1e-3
"""By how much a pixel may be outside of 0 to 1."""


def with_scale(
    train: Samples, test: Samples, preparation: Preparation, scale: PixelScale
) -> tuple[Samples, Samples, Preparation]:
    """Return both parts scaled as a run requires, and their total preparation.

    Inputs that are not images stay as they are; so do floats outside of 0 to 1, which their owner
    has prepared in an unknown way.

    Args:
        train: a device's samples for training.
        test: those for tests.
        preparation: of both.
        scale: of the run; one without a mean leaves all as it is.

    Raises:
        DataError: ``images.scale``: they were scaled otherwise, or have other channels. The message
            is a predicate of the data, such as "has images of 1 channels".
    """
    parts = [part for part in (train, test) if len(part)]
    if not scale.mean or not parts or parts[0].inputs.ndim != 4:
        return train, test, preparation
    channels = int(parts[0].inputs.shape[1])
    if len(scale.mean) not in (1, channels):
        raise _misfit(f"has images of {channels} channels, and the run scales {len(scale.mean)}")
    done = replace(preparation, mean=scale.mean, std=scale.std)
    if preparation.mean:
        if not _same(preparation, done, channels):
            raise _misfit(
                f"scaled its images by {_in_words(preparation)}, and the run by {_in_words(done)}"
            )
        return train, test, preparation
    if not all(part.has_images or are_pixels(part.inputs) for part in parts):
        return train, test, preparation
    return _scaled(train, done), _scaled(test, done), done


def _scaled(part: Samples, preparation: Preparation) -> Samples:
    return normalized(part, preparation) if len(part) else part


def are_pixels(inputs: Array) -> bool:
    """Return whether all inputs are from 0 to 1, as unscaled pixels are."""
    low, high = float(inputs.min()), float(inputs.max())
    return -ROUNDING <= low <= high <= 1 + ROUNDING


def _same(one: Preparation, other: Preparation, channels: int) -> bool:
    pairs = zip(one.scale(channels), other.scale(channels), strict=True)
    return all(np.allclose(mine, others, rtol=1e-5, atol=1e-6) for mine, others in pairs)


def _in_words(preparation: Preparation) -> str:
    mean, std = (
        ", ".join(f"{value:.4g}" for value in values)
        for values in (preparation.mean, preparation.std)
    )
    return f"mean {mean} and std {std}"


def _misfit(what: str) -> DataError:
    return DataError(
        what, code="images.scale", hint="leave out normalize, mean and std of the device's source"
    )
