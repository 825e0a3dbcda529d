"""An adapter for torchvision's data sets: downloaded once, checked, returned as arrays.

torchvision checks downloads against known digests. It checks CIFAR's files, which are pickles, each
time before it opens them.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgefed.data.base.checks import checked_samples, count_classes, require_samples
from edgefed.data.base.paths import resolve
from edgefed.data.base.preparation import Moments
from edgefed.data.base.types import Dataset, Indices
from edgefed.data.sets.options import DataOptions
from edgefed.errors import DataError, MissingDataError
from edgefed.files.samples import Samples
from edgefed.process.lock import waiting_lock


@dataclass(frozen=True)
class VisionSet:
    """One data set of torchvision.

    Attributes:
        title: its usual name.
        kind: name of torchvision's class.
        place: the part of the folder with its files.
        classes: number of labels by the name of the split, which is empty for most data sets.
        moments: mean and standard deviation that papers use; None where there are none.
        by_split: the class takes ``split = "train"`` instead of ``train = True``.
        upright: the files hold upright images, not mirrored along their diagonal.
        coarse: labels have coarse ones.
    """

    title: str
    kind: str
    place: str
    classes: Mapping[str, int]
    moments: Moments | None = None
    by_split: bool = False
    upright: bool = True
    coarse: bool = False


TEN = {"": 10}

MNIST = VisionSet("MNIST", "MNIST", "MNIST/raw", TEN, Moments((0.1307,), (0.3081,)))
FASHION_MNIST = VisionSet(
    "Fashion-MNIST", "FashionMNIST", "FashionMNIST/raw", TEN, Moments((0.2860,), (0.3530,))
)
EMNIST = VisionSet(
    "EMNIST",
    "EMNIST",
    "EMNIST/raw",
    {"balanced": 47, "byclass": 62, "letters": 26, "digits": 10},
    upright=False,
)
CIFAR10 = VisionSet(
    "CIFAR-10",
    "CIFAR10",
    "cifar-10-batches-py",
    TEN,
    # As FedMA and many others state them, in bytes.
    Moments((125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255)),
)
CIFAR100 = VisionSet(
    "CIFAR-100",
    "CIFAR100",
    "cifar-100-python",
    {"": 100},
    Moments((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    coarse=True,
)
SVHN = VisionSet(
    "SVHN",
    "SVHN",
    "*_32x32.mat",
    TEN,
    Moments((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    by_split=True,
)

VISION_SETS: Mapping[str, VisionSet] = {
    "mnist": MNIST,
    "fashion-mnist": FASHION_MNIST,
    "emnist": EMNIST,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "svhn": SVHN,
}
"""By the name that a recipe and a device's source have."""


class VisionOptions(DataOptions):
    """Keys of the data sets that torchvision downloads."""

    path: str = ""
    """Folder for the download, which gets a subfolder; empty for the default."""


class EmnistOptions(VisionOptions):
    """Keys of ``name = "emnist"``."""

    split: Literal["balanced", "byclass", "letters", "digits"] = "balanced"
    """Part of the data set: 47 labels of equal size, all 62, 26 letters, 10 digits."""


def vision_files(which: VisionSet, options: VisionOptions, folder: Path | None) -> list[Path]:
    """Return the files of a data set that are there; none before the download."""
    places = resolve(options.path, folder).glob(which.place)
    return sorted(
        file for place in places for file in (place.iterdir() if place.is_dir() else [place])
    )


def load_vision(which: VisionSet, options: VisionOptions, folder: Path | None) -> Dataset:
    """Return a data set with its own test set; download it if it is missing.

    Raises:
        DataError: it is missing and cannot be downloaded.
    """
    split = options.split if isinstance(options, EmnistOptions) else ""
    return read_vision(which, resolve(options.path, folder), split)


def read_vision(which: VisionSet, folder: Path, split: str = "") -> Dataset:
    """Return a data set from ``folder``, downloaded into it if it is missing.

    Args:
        which: one of `VISION_SETS`.
        folder: where torchvision keeps it.
        split: which part of EMNIST.

    Raises:
        DataError: it is missing and cannot be downloaded.
    """
    train, test = (_part(which, folder, part, split) for part in ("train", "test"))
    where = f"{which.title} in {folder}"
    classes = which.classes[split]
    if count_classes(where, train, test) > classes:
        raise DataError(
            f"{where} has labels outside its {classes} classes.",
            code="data.unreadable",
            hint="delete its files; they are then downloaded again",
        )
    coarse = coarse_labels() if which.coarse else None
    return Dataset(train, test, classes, train.inputs.shape[1:], coarse=coarse)


def _part(which: VisionSet, folder: Path, part: str, split: str) -> Samples:
    where = f"{which.title} in {folder}"
    opened = _open(which, folder, part, split)
    labels = np.asarray(opened.labels if which.by_split else opened.targets)
    if split == "letters":
        labels = labels - 1  # its labels are 1 to 26
    pixels = np.asarray(opened.data)
    samples = checked_samples(pixels if which.upright else pixels.swapaxes(1, 2), labels, where)
    require_samples(samples, where)
    return samples


def _open(which: VisionSet, folder: Path, part: str, split: str) -> Any:
    """Return torchvision's data set."""
    keys: dict[str, Any] = {"split": part} if which.by_split else {"train": part == "train"}
    if split:
        keys["split"] = split
    try:
        # What torchvision prints while it downloads is talk, and stdout is for data.
        with contextlib.redirect_stdout(sys.stderr), waiting_lock(folder):
            make = getattr(importlib.import_module("torchvision.datasets"), which.kind)
            return make(str(folder), download=True, **keys)
    except ImportError as error:
        raise MissingDataError(
            f"{which.title} needs a library that is not installed: {error}.",
            code="data.missing",
            hint="pip install 'edgefed[demo]'",
        ) from error
    # Archives, servers and file formats each fail in their own way.
    except Exception as error:
        raise DataError(
            f"{which.title} is not in {folder} and cannot be downloaded: {_reason(error)}.",
            code="data.download",
            hint=f"connect to the network once, or copy its files into {folder / which.place}",
        ) from error


def _reason(error: Exception) -> str:
    """Return the last line of the error, which is the reason; the first ones list the mirrors."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip().rstrip(".") if lines else type(error).__name__


KINDS = {
    "aquatic mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food containers": "bottle bowl can cup plate",
    "fruit and vegetables": "apple mushroom orange pear sweet_pepper",
    "household electrical devices": "clock keyboard lamp telephone television",
    "household furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large carnivores": "bear leopard lion tiger wolf",
    "large man-made outdoor things": "bridge castle house road skyscraper",
    "large natural outdoor scenes": "cloud forest mountain plain sea",
    "large omnivores and herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium-sized mammals": "fox porcupine possum raccoon skunk",
    "non-insect invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles 1": "bicycle bus motorcycle pickup_truck train",
    "vehicles 2": "lawn_mower rocket streetcar tank tractor",
}
"""The names of the labels under each coarse label; both are numbered in alphabetical order."""


def coarse_labels() -> Indices:
    """Return the coarse label, 0 to 19, of each label, 0 to 99."""
    by_name = {
        name: number for number, names in enumerate(KINDS.values()) for name in names.split()
    }
    return np.array([by_name[name] for name in sorted(by_name)], np.int64)
