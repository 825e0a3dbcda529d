"""The data of the study: devices that train, and a new shard of devices that never do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.config.recipe import DataSection
from edgefed.data.partition import partition
from edgefed.learn.types import Array
from edgefed.seeds import generator

CLASSES = 10


@dataclass(frozen=True)
class Files:
    """NPZ files whose ``groups_train`` say which device has a sample."""

    known: Path
    new: Path


@cache
def read(data: Path) -> dict[str, Array]:
    """Return images and labels: those of MNIST, or scikit-learn's digits where it is not there."""
    path = data / "mnist/mnist.npz"
    if path.exists():
        arrays = dict(np.load(path, allow_pickle=False))
        return {"inputs": arrays["x_train"], "labels": arrays["y_train"].astype(np.int64)}
    from sklearn.datasets import load_digits  # not needed where MNIST is

    digits = load_digits()
    images = (digits.images * (255 / 16)).astype(np.uint8)
    return {"inputs": images, "labels": digits.target.astype(np.int64)}


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
        The arrays of the two files.
    """
    count = sum(sizes)
    taken = generator(seed, "samples").permutation(len(arrays["labels"]))[: count * each]
    inputs, labels = arrays["inputs"][taken], arrays["labels"][taken]
    section = DataSection(partition="dirichlet-equal", alpha=alpha)
    parts = partition(section, labels, count, CLASSES, generator(seed, "devices"))
    known, new = parts[: sizes[0]], parts[sizes[0] :]
    return _grouped(inputs, labels, known), _grouped(inputs, labels, new)


def _grouped(inputs: Array, labels: Array, parts: tuple[Array, ...]) -> dict[str, Any]:
    rows = np.concatenate(parts)
    groups = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return {
        "x_train": inputs[rows],
        "y_train": labels[rows],
        "groups_train": groups,
        "x_test": inputs[:0],
        "y_test": labels[:0],
        "classes": np.array(CLASSES),
    }


def written(folder: Path, name: str, arrays: Mapping[str, Any]) -> Path:
    """Return the file of some arrays, which is named by its content, and write it once."""
    content = hashlib.sha256(b"".join(arrays[key].tobytes() for key in sorted(arrays))).hexdigest()
    path = folder / f"{name}-{content[:12]}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(path, **dict(arrays))
    return path
