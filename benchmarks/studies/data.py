"""The data of the studies: images, and files that are named by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.data.images.jpeg import unpacked
from edgefed.learn.base.types import Array
from edgefed.sharing.types import Indices

CLASSES = 10


@cache
def images(data: Path, digits: bool = False) -> dict[str, Array]:
    """Return training and test images with their labels.

    Args:
        data: folder of ``mnist/mnist.npz``; without it, scikit-learn's digits are used.
        digits: whether they are used in any case.
    """
    path = data / "mnist/mnist.npz"
    if path.exists() and not digits:
        return dict(np.load(path, allow_pickle=False))
    from sklearn.datasets import load_digits  # not needed where MNIST is

    found = load_digits()
    inputs = (found.images * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(1).permutation(len(inputs))
    parts = {"train": order[:1400], "test": order[1400:]}
    arrays = {f"x_{part}": inputs[rows] for part, rows in parts.items()}
    return arrays | {f"y_{part}": found.target[rows] for part, rows in parts.items()}


def read(path: Path, cache: Path) -> dict[str, Array]:
    """Return a file's arrays, with JPEG images decoded and writers from the file beside it."""
    arrays = dict(np.load(path, allow_pickle=False))
    for part in ("train", "test"):
        if f"jpeg_{part}" in arrays:
            jpeg, offsets = arrays[f"jpeg_{part}"], arrays[f"offsets_{part}"]
            arrays[f"x_{part}"], _ = unpacked(jpeg, offsets, cache, str(path))
    writers = path.with_name(f"{path.stem}_writers.npz")
    if writers.exists():
        arrays["writer_train"] = np.load(writers, allow_pickle=False)["writer_train"]
    return arrays


def tune_and_test(
    folder: Path,
    arrays: Mapping[str, Array],
    train: Indices,
    apart: Indices,
    tested: Indices,
    **more: Array,
) -> dict[str, Path]:
    """Write two data sets with the same training samples, ``tune`` and ``test``; return the files.

    Args:
        folder: of the files.
        arrays: images and labels of the training and the test part.
        train: training samples that devices share out.
        apart: other training samples, which settings are scored on.
        tested: test samples.
        more: further arrays of the training samples.
    """
    common = {"x_train": arrays["x_train"][train], "y_train": arrays["y_train"][train], **more}
    held = {"tune": ("train", apart), "test": ("test", tested)}
    return {
        name: written(
            folder,
            name,
            {**common, "x_test": arrays[f"x_{part}"][rows], "y_test": arrays[f"y_{part}"][rows]},
        )
        for name, (part, rows) in held.items()
    }


def written(folder: Path, name: str, arrays: Mapping[str, Any]) -> Path:
    """Write an NPZ file once, and return it; a result belongs to its content."""
    whole = {**arrays, "classes": np.array(CLASSES)}
    digest = hashlib.sha256()
    for key, array in sorted(whole.items()):
        digest.update(f"{key} {array.shape} {array.dtype}".encode() + array.tobytes())
    content = digest.hexdigest()
    path = folder / f"{name}-{content[:12]}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        np.savez(part, **whole)
        part.replace(path)
    return path
