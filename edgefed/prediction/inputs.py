"""Convert a user's arrays to model inputs: images of any size, finished inputs, or tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgefed.errors import DataError
from edgefed.learn.modeling.model import Model
from edgefed.learn.samples.sample_cache import check_inputs

Array = npt.NDArray[Any]
Pixels = npt.NDArray[np.uint8]
"""One image, (height, width) or (height, width, 3)."""

COLOURS = (1, 3)
"""Channels of images that Pillow can convert and scale."""


def is_image_shape(shape: tuple[int, ...]) -> bool:
    """Return whether inputs of a shape are images of one or three channels."""
    return len(shape) == 3 and shape[0] in COLOURS


def model_inputs(array: Array, model: Model) -> Array:
    """Return an array as inputs of a model: uint8 pixels, the model's floats, or int64 tokens.

    uint8 images may be (n, h, w), (n, h, w, channels) or (n, channels, h, w) of any size, grey or
    in colour: they are converted and scaled as image files are. Other numbers must have the form
    that the model takes, scaled as in training.

    Raises:
        DataError: ``predict.input``: the array is neither; or as ``check_inputs``.
    """
    array = np.asarray(array)
    if array.dtype.kind not in "biuf" or array.ndim < 1:
        raise _unfit(array, model)
    is_whole = array.dtype.kind in "iu" and model.vocabulary is not None
    if array.dtype == np.uint8 and not is_whole and array.shape[1:] != model.shape:
        array = _fitted_images(array, model)
    elif array.shape[1:] != model.shape:
        raise _unfit(array, model)
    check_inputs(array, model)
    return array if array.dtype == np.uint8 and not is_whole else array.astype(model.input_kind)


def fitted(pixels: Pixels, shape: tuple[int, ...]) -> Pixels:
    """Return one image as uint8 (channels, height, width) of a model's shape.

    It is converted and then scaled by Pillow, like the image files that models are trained on.
    """
    from PIL import Image

    channels, height, width = shape
    wanted = (height, width, 3) if channels == 3 else (height, width)
    if pixels.shape != wanted:
        image = Image.fromarray(pixels).convert("RGB" if channels == 3 else "L")
        pixels = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) if channels == 3 else pixels[None])


def _fitted_images(array: Array, model: Model) -> Pixels:
    """Return uint8 images of any layout and size as a model takes them."""
    if not is_image_shape(model.shape) or array.ndim not in (3, 4) or 0 in array.shape[1:]:
        raise _unfit(array, model)
    if array.ndim == 4 and array.shape[3] not in COLOURS:
        array = array.transpose(0, 2, 3, 1)
    if array.ndim == 4 and array.shape[3] not in COLOURS:
        raise _unfit(array, model)
    if array.ndim == 4 and array.shape[3] == 1:
        array = array[..., 0]
    images = [fitted(np.ascontiguousarray(image), model.shape) for image in array]
    return np.stack(images) if images else np.zeros((0, *model.shape), np.uint8)


def _unfit(array: Array, model: Model) -> DataError:
    shape = ", ".join(("n", *map(str, model.shape)))
    if model.vocabulary is not None:
        hint = f"give token numbers, integers of shape ({shape})"
    elif is_image_shape(model.shape):
        hint = f"give uint8 images (n, height, width[, 3]), or floats of shape ({shape})"
    else:
        hint = f"give floats of shape ({shape})"
    return DataError(
        f"The model cannot take {array.dtype} of shape {array.shape}.",
        code="predict.input",
        hint=hint,
    )
