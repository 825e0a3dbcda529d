"""A device's samples as plain arrays, used by the learning core and the data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


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
            np.array(each or (neutral,), np.float32).reshape(-1, 1, 1)
            for each, neutral in ((self.mean, 0.0), (self.std, 1.0))
        )
        return mean, std

    def inputs(self, images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Return uint8 images (n, channels, height, width) as inputs of the same shape."""
        inputs = images.astype(np.float32)
        inputs /= 255
        if self.mean:
            mean, std = self.constants()
            inputs -= mean
            inputs /= std
        return inputs


EVERYTHING = slice(None)
"""All samples."""

UNSCALED = PixelScale()
"""Inputs are pixels from 0 to 1, or no images."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples; equal only to itself, as arrays have no single truth value.

    Attributes:
        inputs: float32 array (n, …), int64 tokens (n, length), or uint8 images (n, channels,
            height, width), which may be mapped from a file and become float32 batch by batch.
        targets: int64 labels (n,), or float32 targets (n, classes): shares of labels, or
            numbers, one for each output.
        columns: int64 arrays (n,) by name, of what else is known of each sample, such as the
            ``rotation`` of an image or the ``site`` it is from: numbers of categories, from 0.
        scale: how uint8 images are to become inputs, and how float32 images became what they are.
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
    def has_labels(self) -> bool:
        """Whether targets are labels, and not a row of numbers for each sample."""
        return self.targets.ndim == 1 and self.targets.dtype.kind in "iu"

    def __len__(self) -> int:
        return len(self.targets)
