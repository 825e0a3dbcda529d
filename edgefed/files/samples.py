"""A device's samples as plain arrays, used by the learning core and the data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from edgefed.files.stored_images import StoredImages


@dataclass(frozen=True)
class PixelScale:
    """How the pixels of images, from 0 to 1, become inputs: (x - mean) / std for each channel.

    Attributes:
        mean, std: one number for each channel, or one for all; empty for pixels as they are.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def constants(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return mean and deviation as (channels or 1, 1, 1) float32; 0 and 1 for neither."""
        mean, std = (
            np.array(values or (neutral,), np.float32).reshape(-1, 1, 1)
            for values, neutral in ((self.mean, 0.0), (self.std, 1.0))
        )
        return mean, std

    def inputs(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Return uint8 images (n, channels, height, width) as inputs of the same shape."""
        inputs = images.astype(np.float32)
        inputs /= 255
        return self.scaled(inputs)

    def scaled(self, inputs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Scale pixels from 0 to 1 (n, channels, height, width) in place, and return them."""
        if self.mean:
            mean, std = self.constants()
            inputs -= mean
            inputs /= std
        return inputs


EVERYTHING = slice(None)
"""All samples."""

UNSCALED = PixelScale()
"""Inputs are pixels from 0 to 1, or no images."""


class ScaledImages:
    """uint8 images as the inputs of a model: an array that is scaled when it is indexed.

    Args:
        images: uint8 (n, channels, height, width).
        scale: of the conversion to inputs.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, images: npt.NDArray[np.uint8], scale: PixelScale) -> None:
        self.images = images
        self._scale = scale
        self.shape = images.shape
        self.ndim = images.ndim
        self.size = images.size

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Any) -> npt.NDArray[np.float32]:
        """Return the inputs of a number, a slice, an array of numbers or of choices."""
        return self._scale.inputs(self.images[index])

    def __array__(self, dtype: npt.DTypeLike = None, copy: bool | None = None) -> npt.NDArray[Any]:
        del copy  # what is scaled is a copy
        return self[:] if dtype is None else self[:].astype(dtype)


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples; equal only to itself, as arrays have no single truth value.

    Attributes:
        inputs: float32 array (n, …), int64 tokens (n, length), or uint8 images (n, channels,
            height, width), which become float32 batch by batch and may be ``StoredImages``, which
            are read when they are indexed.
        targets: int64 labels (n,), or float32 targets (n, classes): shares of labels, or
            numbers, one for each output.
        columns: int64 arrays (n,) by name, with further facts about each sample, such as the
            ``rotation`` of an image or its ``site``: numbers of categories, from 0.
        scale: by which uint8 images become inputs, or float32 images became inputs.
    """

    inputs: npt.NDArray[Any]
    targets: npt.NDArray[Any]
    columns: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    scale: PixelScale = UNSCALED

    @property
    def has_images(self) -> bool:
        """Whether inputs are uint8 images, which become float32 batch by batch."""
        return self.inputs.dtype == np.uint8

    def float_inputs(self, index: slice | npt.NDArray[np.int64] = EVERYTHING) -> npt.NDArray[Any]:
        """Return the inputs of some samples as a model takes them: float32, or int64 tokens."""
        inputs = self.inputs[index]
        return self.scale.inputs(inputs) if self.has_images else inputs

    @property
    def model_inputs(self) -> npt.NDArray[Any]:
        """All inputs as a model takes them; images are read and scaled where they are indexed."""
        if not self.has_images:
            return self.inputs
        return cast("npt.NDArray[Any]", ScaledImages(self.inputs, self.scale))

    def take(self, index: npt.NDArray[Any]) -> Samples:
        """Return some samples in the order of ``index``, copied but for images in a file."""
        columns = {name: column[index] for name, column in self.columns.items()}
        return replace(
            self, inputs=chosen(self.inputs, index), targets=self.targets[index], columns=columns
        )

    @property
    def has_labels(self) -> bool:
        """Whether targets are labels, and not a row of numbers for each sample."""
        return self.targets.ndim == 1 and self.targets.dtype.kind in "iu"

    def __len__(self) -> int:
        return len(self.targets)


def stored(inputs: npt.NDArray[Any] | StoredImages) -> StoredImages | None:
    """Return inputs that are images in a file; None for an array in memory."""
    return inputs if isinstance(inputs, StoredImages) else None


def scaled_images(inputs: npt.NDArray[Any] | ScaledImages) -> ScaledImages | None:
    """Return inputs that are scaled where they are indexed; None for an array."""
    return inputs if isinstance(inputs, ScaledImages) else None


def chosen(inputs: npt.NDArray[Any], index: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return some inputs, copied but for images in a file, which are not read."""
    images = stored(inputs)
    return inputs[index] if images is None else as_inputs(images.select(index))


def as_inputs(images: StoredImages) -> npt.NDArray[Any]:
    """Return images in a file as the inputs of ``Samples``."""
    return cast("npt.NDArray[Any]", images)


def joined_inputs(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return the inputs of all parts, part by part; images in one file are not read."""
    images = [image for image in map(stored, parts) if image is not None]
    if len(images) == len(parts) and len({id(image.file) for image in images}) == 1:
        rows, digests = (
            np.concatenate([getattr(i, name) for i in images]) for name in ("rows", "digests")
        )
        return as_inputs(StoredImages(images[0].file, rows, digests))
    return np.concatenate(parts)
