"""A small recipe and small data for simulations from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgefed.api.rounds import RoundResult
from edgefed.files.samples import Samples
from tests.run_fixture import samples

Arrays = tuple[Any, Any]

TRAIN, TEST = samples(60, 1), samples(15, 2)


def arrays(part: Samples) -> Arrays:
    return part.inputs, part.targets


def recipe(**sections: Any) -> dict[str, Any]:
    """Return the tables of a recipe for the data: a tiny model, and two rounds unless told."""
    return {
        "seed": 5,
        "model": {"name": "mlp", "hidden": [4]},
        "data": {"partition": "iid", **sections.pop("data", {})},
        "rounds": {"count": 2, **sections.pop("rounds", {})},
        "simulation": {"devices": 4, "workers": 1, **sections.pop("simulation", {})},
        **sections,
    }


def npz(folder: Path, *, tested: bool = True) -> dict[str, Any]:
    """Write the data to a file, and return the recipe's ``[data]`` table that names it."""
    parts: dict[str, Any] = {"x_train": TRAIN.inputs, "y_train": TRAIN.targets}
    if tested:
        parts |= {"x_test": TEST.inputs, "y_test": TEST.targets}
    path = folder / "data.npz"
    np.savez(path, **parts)
    return {"name": "npz", "path": str(path)}


def images(count: int, channels: int = 3, seed: int = 0) -> Arrays:
    """Return images of bytes, channels last, whose labels are how bright they are."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    pixels = rng.integers(0, 60, (count, 8, 8, channels)) + 80 * labels.reshape(-1, 1, 1, 1)
    return pixels.astype(np.uint8), labels


class Heard:
    """A callback that keeps the rounds' numbers."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, result: RoundResult) -> None:
        self.numbers.append(result.number)
