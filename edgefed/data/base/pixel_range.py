"""Convert prepared inputs to pixels from 0 to 1, and pixels to prepared inputs.

A mix of a label is computed from pixels, because their range bounds the effect of one record.
Training takes it as inputs, which may be standardised for each channel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgefed.data.base.preparation import normalized
from edgefed.data.base.types import Array, Preparation
from edgefed.errors import DataError
from edgefed.files.samples import UNSCALED, Samples

ROUNDING = 1e-3
"""By how much a pixel may be outside of 0 to 1 once its standardisation is undone."""


def to_pixels(samples: Samples, preparation: Preparation) -> Samples:
    """Return samples whose inputs are pixels from 0 to 1, as float32; other fields stay.

    Pixels of uint8 images are converted when they are indexed.

    Args:
        samples: images (n, channels, height, width) or (n, height, width).
        preparation: of the inputs.

    Raises:
        DataError: ``mix.pixels``: they are not images, or their pixels are not from 0 to 1.
    """
    _check_images(samples.inputs)
    if samples.has_images:
        plain = replace(samples, scale=UNSCALED)
        return replace(plain, inputs=plain.model_inputs)
    pixels = _restored(samples.inputs, preparation)
    low, high = (float(pixels.min()), float(pixels.max())) if pixels.size else (0.0, 1.0)
    if not -ROUNDING <= low <= high <= 1 + ROUNDING:
        raise _unfit(f"they range from {low:.4g} to {high:.4g}", _RANGE_HINT)
    return replace(samples, inputs=np.clip(pixels, 0, 1, out=pixels))


def from_pixels(pixels: Array, preparation: Preparation) -> Array:
    """Return 8-bit pixels as float32 inputs, with the same bits as from a file.

    Args:
        pixels: uint8 (n, channels, height, width) or (n, height, width).
        preparation: of the inputs.
    """
    inputs = pixels.astype(np.float32)
    inputs /= np.float32(255)
    if not preparation.mean:
        return inputs
    return normalized(Samples(inputs, np.zeros(len(inputs), np.int64)), preparation).inputs


def _restored(inputs: Array, preparation: Preparation) -> Array:
    """Return a copy of inputs with the preparation's scale undone."""
    pixels: Array = inputs.astype(np.float32)
    if preparation.mean:
        along = (-1, 1, 1) if inputs.ndim == 4 else (1,)
        mean, std = preparation.scale(inputs.shape[1] if inputs.ndim == 4 else 1)
        pixels *= std.reshape(along)
        pixels += mean.reshape(along)
    return pixels


def _check_images(inputs: Array) -> None:
    if inputs.dtype.kind != "f" and inputs.dtype != np.uint8:
        raise _unfit("they are tokens of a text", _IMAGES_HINT)
    if inputs.ndim not in (3, 4):
        shape = "x".join(map(str, inputs.shape[1:]))
        raise _unfit(f"an input of shape {shape} is no image", _IMAGES_HINT)


_RANGE_HINT = "store images as uint8, or scale them to 0 to 1 before they are standardised"
_IMAGES_HINT = "leave this device out of label bounties"


def _unfit(why: str, hint: str) -> DataError:
    return DataError(
        f"These inputs cannot be mixed for a label: {why}.", code="mix.pixels", hint=hint
    )
