"""The samples of the study of mixtures of experts, and which devices have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.data import CLASSES, images, written
from edgefed.config.recipes.recipe import DataSection
from edgefed.data.devices.partition import partition
from edgefed.learn.base.types import Array
from edgefed.seeds import generator


def read(data: Path) -> dict[str, Array]:
    """Return images and labels: MNIST's training images, or all digits where it is not there."""
    arrays = images(data)
    parts = ("train",) if (data / "mnist/mnist.npz").exists() else ("train", "test")
    inputs = np.concatenate([arrays[f"x_{part}"] for part in parts])
    labels = np.concatenate([arrays[f"y_{part}"] for part in parts])
    return {"inputs": inputs, "labels": labels.astype(np.int64)}


def halves(arrays: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Return two parts without a common sample: one to choose settings on, and one to test on."""
    order = np.random.default_rng(7).permutation(len(arrays["labels"]))
    parts = zip(("tune", "test"), np.array_split(order, 2), strict=True)
    return {part: {name: each[rows] for name, each in arrays.items()} for part, rows in parts}


def dealt(
    arrays: Mapping[str, Array], sizes: tuple[int, int], each: int, alpha: float, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Deal samples to devices that train and to new ones, by one draw of label proportions.

    Args:
        arrays: ``inputs`` and ``labels``.
        sizes: numbers of devices that train, and of new ones.
        each: samples of a device.
        alpha: concentration, multiplied by the share of each label (Hsu et al.).
        seed: of which samples are taken, and of who has which.

    Returns:
        The arrays of two files, whose ``groups_train`` says which device has a sample.
    """
    count = sum(sizes)
    taken = generator(seed, "samples").permutation(len(arrays["labels"]))[: count * each]
    inputs, labels = arrays["inputs"][taken], arrays["labels"][taken]
    section = DataSection(partition="dirichlet-equal", alpha=alpha)
    parts = partition(section, labels, count, CLASSES, generator(seed, "devices"))
    known, new = (_grouped(inputs, labels, p) for p in (parts[: sizes[0]], parts[sizes[0] :]))
    return known, new


def _grouped(inputs: Array, labels: Array, parts: tuple[Array, ...]) -> dict[str, Any]:
    rows = np.concatenate(parts)
    return {
        "x_train": inputs[rows],
        "y_train": labels[rows],
        "groups_train": np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        "x_test": inputs[:0],
        "y_test": labels[:0],
    }


def permuted_file(count: int, data: Path, folder: Path, seed: int) -> Path:
    """Write the file of so many samples of devices, and of a few to test on; return it."""
    arrays = read(data)
    taken = generator(seed, "samples").permutation(len(arrays["labels"]))[: count + 100]
    train, test = np.split(taken, [len(taken) - 100])
    x, y = arrays["inputs"], arrays["labels"]
    whole = {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}
    return written(folder, "permuted", whole)
