"""Data types: a data set, a real device's data, a virtual device's shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edgefed.files.samples import Samples, joined_inputs
from edgefed.natural_noise.draw import DrawNoise, draw_noise
from edgefed.sharing.policy import ANYTHING, Policy

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
"""Which samples, as positions in the data set (n,)."""

ClassNames = tuple[str, ...]
"""Names of labels 0, 1, …; empty where labels have no names."""

CropFill = Literal["reflect", "zeros"]


@dataclass(frozen=True)
class Preparation:
    """The preparation of inputs: normalisation done, and augmentation of training batches.

    Attributes:
        mean, std: of each channel, or one number for all; already applied to the inputs as (x -
            mean) / std; empty for inputs that were not normalised.
        crop: pixels added at each side before a training batch is cut back to its size at a random
            place; 0 for none.
        crop_fill: value of those pixels: the image ``reflect``ed, or ``zeros``, which is the mean
            of normalised inputs.
        flip: mirror half of a training batch left to right.
    """

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    crop: int = 0
    crop_fill: CropFill = "reflect"
    flip: bool = False

    def black(self, channels: int) -> npt.NDArray[np.float32]:
        """Return the prepared value of a black pixel, 0: (channels,) float32."""
        mean, std = self.scale(channels)
        black: npt.NDArray[np.float32] = (0 - mean) / std
        return black

    def scale(self, channels: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return mean and standard deviation of each channel; 0 and 1 for inputs without."""
        mean, std = self.mean or (0.0,), self.std or (1.0,)
        return (
            np.broadcast_to(np.array(mean, np.float32), (channels,)),
            np.broadcast_to(np.array(std, np.float32), (channels,)),
        )


UNPREPARED = Preparation()
"""Inputs as they were read, and batches as they are drawn."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Data for the coordinator's tests and for the virtual devices.

    Attributes:
        train, test: the two parts; either may be empty, and no sample is in both.
        classes: number of labels, 0 to ``classes - 1``; for numeric targets, the length of one.
        shape: shape of one input.
        warnings: for the user, such as of files that were skipped.
        groups: origin of each training sample, such as its writer: (n,) numbers from 0; None where
            the data does not state it.
        coarse: the coarse label of each label, (classes,); None where labels have no such order.
        preparation: of the inputs.
        class_names: names of the labels.
        validation: samples that were taken from ``train`` for choosing; None for none.
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
    validation: Samples | None = None


@dataclass(frozen=True, eq=False)
class DeviceData:
    """The samples of a real device.

    Attributes:
        train, test: for training, and for evaluation on the device; ``test`` may be empty.
        classes: number of labels; the device may hold only some of them.
        shape: shape of one input.
        name: a short name to show.
        warnings: for the device's owner.
        preparation: of the inputs.
        class_names: names of the labels.
        ignored: number of unused files, by reason; see `edgefed.data.sets.folder_listing`.
        ignored_files: paths of the image files among them, by reason; the first of many.
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
    ignored_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Shard:
    """A virtual device's part of a data set.

    Attributes:
        train, test: for training, and for evaluation on the device; ``test`` may be empty.
        classes: number of labels of the whole data set.
        preparation: of the inputs.
        policy: the data that this device shares beside its model.
        class_names: names of the labels.
        noise: draws natural noise.
        pool: pixels from 0 to 1 of all devices, for mixes with samples of any device.
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
