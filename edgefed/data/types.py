"""Data types: a data set, a real device's data, a virtual device's shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edgefed.natural_noise.draw import DrawNoise, draw_noise
from edgefed.samples import Samples, joined_inputs
from edgefed.sharing.policy import ANYTHING, Policy

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
"""Which samples, as positions in the data set (n,)."""

ClassNames = tuple[str, ...]
"""What label 0, 1, … is called; empty where labels have no names."""

CropFill = Literal["reflect", "zeros"]


@dataclass(frozen=True)
class Preparation:
    """What was done to the inputs, and what training shall do to each batch of them.

    Attributes:
        mean, std: of each channel, or one number for all: already taken from the inputs, as
            (x - mean) / std; empty for inputs as they were.
        crop: pixels added at each side before a training batch is cut back to its size at a random
            place; 0 for none.
        crop_fill: what those pixels are: the image ``reflect``ed, or ``zeros``, which is the mean
            of normalised inputs.
        flip: mirror half of a training batch left to right.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    crop: int = 0
    crop_fill: CropFill = "reflect"
    flip: bool = False

    def black(self, channels: int) -> npt.NDArray[np.float32]:
        """Return what a black pixel, 0, has become: (channels,) float32."""
        mean, std = self.scale(channels)
        black: npt.NDArray[np.float32] = (0 - mean) / std
        return black

    def scale(self, channels: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return mean and standard deviation of each channel; 0 and 1 where nothing was taken."""
        mean, std = self.mean or (0.0,), self.std or (1.0,)
        return (
            np.broadcast_to(np.array(mean, np.float32), (channels,)),
            np.broadcast_to(np.array(std, np.float32), (channels,)),
        )


UNPREPARED = Preparation()
"""Inputs as they were read, and batches as they are drawn."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Data that the coordinator tests on and that virtual devices share out.

    Attributes:
        train, test: the two parts; either may be empty, and no sample is in both.
        classes: how many labels there are: 0 up to ``classes - 1``; of targets that are numbers,
            how many a sample has.
        shape: shape of one input.
        warnings: what the user should know, such as files that were skipped.
        groups: who each training sample is from, such as its writer: (n,) numbers from 0; None
            where the data does not tell.
        coarse: the coarse label of each label, (classes,); None where labels have no such order.
        preparation: what was done to the inputs, and what training shall do.
        class_names: what the labels are called.
    """

    train: Samples
    test: Samples
    classes: int
    shape: tuple[int, ...]
    warnings: tuple[str, ...] = ()
    groups: Indices | None = None
    coarse: Indices | None = None
    preparation: Preparation = UNPREPARED
    class_names: ClassNames = ()


@dataclass(frozen=True, eq=False)
class DeviceData:
    """What a real device trains on.

    Attributes:
        train, test: for training, and for evaluation on the device; ``test`` may be empty.
        classes: how many labels there are; the device may hold only some of them.
        shape: shape of one input.
        name: a short name to show.
        warnings: what the device's owner should know.
        preparation: what was done to the inputs, and what training shall do.
        class_names: what the labels are called.
        ignored: how much of the data is not used, by reason; see `edgefed.data.folder_listing`.
    """

    train: Samples
    test: Samples
    classes: int
    shape: tuple[int, ...]
    name: str
    warnings: tuple[str, ...] = ()
    preparation: Preparation = UNPREPARED
    class_names: ClassNames = ()
    ignored: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Shard:
    """A virtual device's part of a data set.

    Attributes:
        train, test: for training, and for evaluation on the device; ``test`` may be empty.
        classes: how many labels the whole data set has.
        preparation: what was done to the inputs, and what training shall do.
        policy: what this device gives away beside its model.
        class_names: what the labels are called.
        noise: draws natural noise.
        pool: pixels from 0 to 1 of all devices, for mixes that take others from anywhere.
    """

    train: Samples
    test: Samples
    classes: int
    preparation: Preparation = UNPREPARED
    policy: Policy = ANYTHING
    class_names: ClassNames = ()
    noise: DrawNoise = draw_noise
    pool: Array | None = None


def take(samples: Samples, indices: Indices) -> Samples:
    """Return the samples at ``indices`` in that order, copied but for images in a file."""
    return samples.take(indices)


def joined(parts: Sequence[Samples]) -> Samples:
    """Return the samples of all parts, part by part; ``columns`` are those of every part."""
    if len(parts) == 1:
        return parts[0]
    columns = {
        name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns
    }
    inputs = joined_inputs([part.inputs for part in parts])
    targets = np.concatenate([part.targets for part in parts])
    return Samples(inputs, targets, columns, parts[0].scale)


def no_samples(shape: tuple[int, ...] = ()) -> Samples:
    """Return zero samples whose inputs would have ``shape``."""
    return Samples(np.zeros((0, *shape), np.float32), np.zeros(0, np.int64))
