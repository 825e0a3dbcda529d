"""The preparation of inputs: normalisation when they are loaded, and augmentation of batches.

Normalised inputs are (x - mean) / std for each channel. Random crops and flips are only declared
here; the trainer draws them for every batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from edgefed.config.recipes.sections import Section
from edgefed.data.base.types import UNPREPARED, Array, CropFill, Dataset, Preparation
from edgefed.errors import DataError, RecipeError
from edgefed.files.samples import PixelScale, Samples


def _listed(value: Any) -> Any:
    """Return the numbers of an array, or of a text such as ``0.49,0.48``, as a source has them."""
    # A strict model takes an array for a tuple only before a validator has touched it.
    values = value.split(",") if isinstance(value, str) else value
    return tuple(values) if isinstance(values, list) else values


PREPARATION = "preparation"
"""Name of the array that tells of it in an NPZ file."""

BLOCK = 1024
"""Samples to average at a time."""

_STORED = TypeAdapter(Preparation)

Means = Annotated[
    tuple[Annotated[float, Field(allow_inf_nan=False)], ...], BeforeValidator(_listed)
]
Deviations = Annotated[
    tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], BeforeValidator(_listed)
]


class PreparationOptions(Section):
    """Keys that say how inputs are prepared."""

    normalize: bool = False
    """Subtract each channel's mean from the inputs and divide by its standard deviation."""

    mean: Means = ()
    """With ``normalize``: the mean of each channel; by default the value that papers use with this
    data, otherwise that of the training samples."""

    std: Deviations = ()
    """With ``normalize``: the standard deviation of each channel, like ``mean``."""

    crop: Annotated[int, Field(ge=0, le=64)] = 0
    """Pixels added at each side before training crops images at a random place; 0 for none."""

    crop_fill: CropFill = "reflect"
    """With ``crop``: the added pixels mirror the image (``reflect``) or are ``zeros``."""

    flip: bool = False
    """Training mirrors half of the images left to right."""


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of each channel, as papers publish them."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def prepared(dataset: Dataset, options: PreparationOptions, published: Moments | None) -> Dataset:
    """Return the data set with inputs normalised, where asked, and augmentation declared.

    Args:
        dataset: as it was read.
        options: the user's.
        published: the moments to use when the user states none; None to measure them.

    Raises:
        RecipeError: the inputs cannot be prepared like that.
    """
    train, test, preparation = prepare(
        dataset.train, dataset.test, options, dataset.preparation, published
    )
    return replace(dataset, train=train, test=test, preparation=preparation)


def prepare(
    train: Samples,
    test: Samples,
    options: PreparationOptions,
    before: Preparation,
    published: Moments | None = None,
) -> tuple[Samples, Samples, Preparation]:
    """Return both parts, and their total preparation.

    Args:
        train: as they were read.
        test: likewise.
        options: the user's.
        before: preparation before they were written; ``options`` replace its augmentation.
        published: the moments to use when the user states none; None to measure them.

    Raises:
        RecipeError: the inputs cannot be prepared like that.
    """
    _check_request(train.inputs, options, before)
    preparation = before
    if options.crop:
        preparation = replace(preparation, crop=options.crop, crop_fill=options.crop_fill)
    if options.flip:
        preparation = replace(preparation, flip=True)
    if options.normalize:
        stated = Moments(options.mean, options.std) if options.mean else published
        moments = stated or measured(train.model_inputs)
        preparation = replace(preparation, mean=moments.mean, std=moments.std)
        _check_channels(train.inputs, preparation)
        train, test = normalized(train, preparation), normalized(test, preparation)
    return train, test, preparation


def scaled_by(samples: Samples, preparation: Preparation) -> Samples:
    """Return samples that say that their inputs were scaled by a preparation."""
    return replace(samples, scale=PixelScale(preparation.mean, preparation.std))


def normalized(samples: Samples, preparation: Preparation) -> Samples:
    """Return samples normalised by the preparation's mean and standard deviation.

    uint8 images are normalised when a batch becomes inputs.
    """
    samples = scaled_by(samples, preparation)
    if samples.has_images:
        return samples
    channels = _channels(samples.inputs)
    mean, std = (_along(value, samples.inputs) for value in preparation.scale(channels))
    inputs = samples.inputs - mean
    inputs /= std
    return replace(samples, inputs=inputs)


def measured(inputs: Array) -> Moments:
    """Return each channel's mean and standard deviation, in double precision.

    Inputs that are no images count as one channel.

    Raises:
        RecipeError: a channel's inputs are all the same, or there are none.
    """
    mean = _averaged(inputs, 0.0, 1)
    variance = _averaged(inputs, mean, 2)
    if not np.all(variance > 0):
        raise _unfit("normalize", "the inputs of a channel are all the same")
    return Moments(tuple(mean.tolist()), tuple(np.sqrt(variance).tolist()))


def channel_moments(inputs: Array, most: int = 64) -> tuple[tuple[float, float], ...]:
    """Return the mean and the standard deviation of each channel of inputs, with six digits.

    It is empty without inputs, for tokens, and for more channels than ``most``.
    """
    if not len(inputs) or (inputs.ndim != 4 and inputs.dtype.kind != "f"):
        return ()
    if _channels(inputs) > most:
        return ()
    mean = _averaged(inputs, 0.0, 1)
    spread = np.sqrt(_averaged(inputs, mean, 2))
    pairs = zip(mean.tolist(), spread.tolist(), strict=True)
    return tuple((float(f"{m:.6g}"), float(f"{s:.6g}")) for m, s in pairs)


def _averaged(inputs: Array, center: Array | float, power: int) -> Array:
    """Return the mean of (inputs - center)^power in each channel, a block of samples at a time.

    In one go the double precision would take twice the memory of the data.
    """
    channels = _channels(inputs)
    total = np.zeros(channels)
    for start in range(0, len(inputs), BLOCK):
        block = inputs[start : start + BLOCK].astype(np.float64)
        by_channel = block.reshape(len(block), channels, -1) - np.reshape(center, (-1, 1))
        total += (by_channel**power).sum(axis=(0, 2))
    values: Array = total / max(1, inputs.size // channels)
    return values


def read_preparation(arrays: Mapping[str, Array], where: str) -> Preparation:
    """Return the ``preparation`` of an NPZ file; that of unprepared inputs where it has none.

    Raises:
        DataError: it is invalid.
    """
    if PREPARATION not in arrays:
        return UNPREPARED
    try:
        return _STORED.validate_json(str(arrays[PREPARATION]), strict=False)
    except ValidationError as error:
        raise DataError(
            f"{where} has a `{PREPARATION}` that cannot be read.",
            code="data.unreadable",
            hint="create the shard again with edgefed data split",
        ) from error


def stored_preparation(preparation: Preparation) -> Array:
    """Return a preparation as the array that `read_preparation` reads."""
    return np.array(_STORED.dump_json(preparation).decode())


def _check_request(inputs: Array, options: PreparationOptions, before: Preparation) -> None:
    if options.normalize and before.mean:
        raise _unfit("normalize", "it was normalised when it was written")
    if len(options.mean) != len(options.std):
        raise _unfit("mean", "`mean` and `std` need one number each for every channel")
    if options.mean and not options.normalize:
        raise _unfit("mean", "`normalize` is not set")
    if options.normalize and inputs.dtype.kind == "i":
        raise _unfit("normalize", "the inputs are tokens of a text")
    if not options.crop and not options.flip:
        return
    key = "crop" if options.crop else "flip"
    if inputs.ndim != 4:
        raise _unfit(key, "the inputs are no images")
    if options.crop_fill == "reflect" and options.crop >= min(inputs.shape[2:]):
        raise _unfit("crop", f"images of {inputs.shape[2]}x{inputs.shape[3]} are too small")


def _check_channels(inputs: Array, preparation: Preparation) -> None:
    channels, stated = _channels(inputs), len(preparation.mean)
    if stated not in (1, channels):
        raise _unfit("mean", f"the inputs have {channels} channels, not {stated}")


def _channels(inputs: Array) -> int:
    return int(inputs.shape[1]) if inputs.ndim == 4 else 1


def _along(values: Array, inputs: Array) -> Array:
    """Return one value a channel in the shape that lies along the inputs' channels."""
    return values[:, None, None] if inputs.ndim == 4 else values


def _unfit(key: str, reason: str) -> RecipeError:
    return RecipeError(
        f"The data cannot be prepared with '{key}': {reason}.",
        code="recipe.data",
        hint=f"omit `{key}`, or correct it",
    )
