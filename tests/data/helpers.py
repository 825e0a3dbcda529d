"""Small generated data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from edgefed.config.recipes.recipe import DataSection
from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts
from edgefed.files.samples import Samples

MNIST_FILES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")


def section(**keys: Any) -> DataSection:
    """Return a data section with these keys, as a recipe would hold them."""
    return DataSection.model_validate(keys)


def labelled(labels: npt.NDArray[np.int64]) -> Samples:
    """Return samples whose only input value is their position."""
    positions = np.arange(len(labels), dtype=np.float32)
    return Samples(positions[:, None], labels.astype(np.int64))


def labels_of(classes: int, each: int) -> Indices:
    """Return so many labels of each class, sorted."""
    return np.repeat(np.arange(classes), each)


def is_whole(parts: Parts, samples: int) -> bool:
    """Return whether every sample is in just one of the parts."""
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(samples))


def write_npz(path: Path, **arrays: Any) -> Path:
    """Write arrays as an NPZ file and return its path."""
    np.savez(path, **arrays)
    return path


def write_image(path: Path, shape: tuple[int, ...], value: int) -> None:
    """Write an image of one colour: (height, width) grey or (height, width, 3)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full(shape, value, np.uint8)).save(path)


def write_mnist(folder: Path, images: int) -> None:
    """Write MNIST's four files, small ones, where torchvision keeps them."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in MNIST_FILES:
        if "images" in name:
            data = rng.integers(0, 256, (images, 28, 28), np.uint8)
        else:
            data = (np.arange(images) % 10).astype(np.uint8)
        magic = bytes([0, 0, 8, data.ndim])
        header = magic + b"".join(size.to_bytes(4, "big") for size in data.shape)
        (raw / f"{name}-ubyte").write_bytes(header + data.tobytes())
