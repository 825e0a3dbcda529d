"""Measure what a pretrained network learns whose head three devices train on a few photos each.

The devices have generated photos of circle and cross, of all three new shapes, and of the star
alone. The trunk was trained on other shapes, or is random. The accuracy is that on new photos.

    python -m benchmarks.fine_tuning [--seeds 3] [--rounds 20] [--photos 60] [--json]
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import edgefed
from benchmarks.fine_tuning.photos import (
    NETWORK,
    NEW,
    SEEN_SIDE,
    photos,
    write_photos,
    write_pretrained,
)
from benchmarks.shared.harness import parser, show, table
from edgefed.data.base.types import Dataset
from edgefed.data.devices.sources import load_device
from edgefed.simulator.sweep.statistics import spread

HELD = {"cam-1": ("circle", "cross"), "cam-2": ("cross", "star", "circle"), "cam-3": ("star",)}
"""Classes that each device has photos of."""

EPOCHS = 8
"""Of the training on other shapes."""


def dataset(folder: Path, decoded: Path) -> Dataset:
    """Return a device's photos as its agent reads them."""
    (folder / "classes.txt").write_text("\n".join(NEW))
    found = load_device(f"folder:{folder}?size={SEEN_SIDE}", 0.0, decoded)
    return Dataset(
        found.train, found.test, found.classes, found.shape, class_names=found.class_names
    )


def accuracy(folder: Path, weights: Path, seed: int, rounds: int, count: int) -> float:
    """Return the share of new photos that the head of a run names, with these frozen weights."""
    data = {
        name: dataset(write_photos(folder / name, 10 * seed + number, held, count), folder / "d")
        for number, (name, held) in enumerate(HELD.items())
    }
    recipe: dict[str, Any] = {
        "seed": seed,
        "model": {"name": f"torchvision:{NETWORK}", "train": "head", "weights": str(weights)},
        "data": {"name": "none", "classes": list(NEW)},
        "training": {"learning_rate": 0.01, "momentum": 0.9},
        "rounds": {"count": rounds, "cohort": 3, "min_devices": 3, "quorum": 1.0},
        "evaluation": {"on": "devices", "every": 0},
        "simulation": {"devices": 3},
    }
    edgefed.simulate(recipe, data=data, folder=folder / "runs")
    (file,) = (folder / "runs").rglob("model.safetensors")
    new, labels = photos(np.random.default_rng(1000 + seed), NEW, 300)
    names = np.array(list(NEW))[labels]
    return float(np.mean(np.array(edgefed.load_model(file).predict(new).labels) == names))


def main() -> None:
    """Run the study and print its table."""
    command = parser("fine_tuning", __doc__, seeds=3, rounds=20, photos=60, before=3000)
    options = command.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as place:
        for trunk, epochs in (("trained on other shapes", EPOCHS), ("random", 0)):
            path = Path(place) / f"{epochs}.pth"
            weights = write_pretrained(path, count=options.before, epochs=epochs)
            found[trunk] = [
                accuracy(
                    Path(place) / f"{epochs}-{seed}", weights, seed, options.rounds, options.photos
                )
                for seed in range(1, options.seeds + 1)
            ]
    rows = [{"trunk": trunk, "accuracy": spread(values)} for trunk, values in found.items()]
    show(options, found, table(rows), indent=2)


if __name__ == "__main__":
    main()
