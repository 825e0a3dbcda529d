"""The data of the study: files to choose settings on, and others, without a common sample, to test.

Images: MNIST's training images are halved once. Settings are chosen on the first half, of which a
part is held out. Tests train on the second half and are scored on MNIST's test images. Roles: half
of the roles are for choosing settings, the others for tests; each role's text is cut by time.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgefed.learn.types import Array
from edgefed.seeds import generator

Part = Literal["tune", "test"]

HELD_OUT = 2000
"""Images that choose settings."""

TESTED = 5000
"""Images of the test set that are used."""


@cache
def images(data: Path) -> dict[str, Array]:
    """Return training and test images: MNIST's, or scikit-learn's digits where it is not there."""
    path = data / "mnist/mnist.npz"
    if path.exists():
        arrays = dict(np.load(path, allow_pickle=False))
        return {name: arrays[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    from sklearn.datasets import load_digits  # not needed where MNIST is

    digits = load_digits()
    inputs = (digits.images * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(7).permutation(len(inputs))
    train, test = order[400:], order[:400]
    labels = digits.target
    return {
        "x_train": inputs[train],
        "y_train": labels[train],
        "x_test": inputs[test],
        "y_test": labels[test],
    }


def image_file(data: Path, folder: Path, part: Part, count: int, seed: int) -> Path:
    """Write ``count`` training images that a seed draws, and the images to score on; once.

    Args:
        data: folder of ``mnist/mnist.npz``.
        folder: of the files that are written.
        part: whether settings are chosen on the file.
        count: training images; fewer where the half has fewer.
        seed: of the draw.
    """
    path = folder / f"images-{part}-{count}-{seed}.npz"
    if path.exists():
        return path
    arrays = images(data)
    x, y = arrays["x_train"], arrays["y_train"].astype(np.int64)
    tune, test = np.array_split(np.random.default_rng(7).permutation(len(y)), 2)
    if part == "tune":
        held = min(HELD_OUT, len(tune) // 4)
        apart, half = tune[:held], tune[held:]
        scored = {"x_test": x[apart], "y_test": y[apart]}
    else:
        half = test
        labels = arrays["y_test"].astype(np.int64)
        scored = {"x_test": arrays["x_test"][:TESTED], "y_test": labels[:TESTED]}
    rows = generator(seed, "samples").permutation(half)[:count]
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"x_train": x[rows], "y_train": y[rows], **scored}
    _replace(path, lambda file: np.savez(file, classes=np.array(10), **found))
    return path


def role_file(data: Path, folder: Path, part: Part, roles: int, length: int, seed: int) -> Path:
    """Write roles that a seed draws, each with its first ``length`` characters; once.

    Args:
        data: folder of ``shakespeare/shakespeare_roles.jsonl``.
        folder: of the files that are written.
        part: whether settings are chosen on the file.
        roles: their number; all have at least ``length`` characters.
        length: characters of each role.
        seed: of the draw.
    """
    path = folder / f"roles-{part}-{roles}-{length}-{seed}.jsonl"
    if path.exists():
        return path
    lines = (data / "shakespeare/shakespeare_roles.jsonl").read_text("utf-8").splitlines()
    long = [record for record in map(json.loads, lines) if len(record["text"]) >= length]
    order = np.random.default_rng(7).permutation(len(long))
    half = dict(zip(("tune", "test"), np.array_split(order, 2), strict=True))[part]
    chosen = generator(seed, "roles").permutation(half)[:roles]
    kept = [{"role": long[n]["role"], "text": long[n]["text"][:length]} for n in chosen]
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record) + "\n" for record in kept)
    _replace(path, lambda file: file.write(text.encode()))
    return path


def _replace(path: Path, write: Any) -> None:
    """Write a file that another process may be writing too."""
    part = path.with_name(f"{path.name}.{np.random.default_rng().integers(2**62)}.part")
    with part.open("wb") as file:
        write(file)
    part.replace(path)
