"""Three devices with photos, a pretrained network whose head is trained, and new photos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgefed
from edgefed.data.base.types import Dataset
from edgefed.data.devices.sources import load_device
from tests.api.generated_photos import (
    NETWORK,
    NEW,
    SEEN_SIDE,
    photos,
    write_photos,
    write_pretrained,
)

HELD = {"cam-1": ("circle", "cross"), "cam-2": ("cross", "star", "circle"), "cam-3": ("star",)}
"""Classes that each device has photos of."""


def dataset(folder: Path, decoded: Path) -> Dataset:
    """Return a device's photos as its agent reads them."""
    (folder / "classes.txt").write_text("\n".join(NEW))
    found = load_device(f"folder:{folder}?size={SEEN_SIDE}", 0.0, decoded)
    return Dataset(
        found.train, found.test, found.classes, found.shape, class_names=found.class_names
    )


@pytest.mark.slow
def test_a_pretrained_network_learns_from_a_few_photos_on_each_device(tmp_path: Path) -> None:
    weights = write_pretrained(tmp_path / "pretrained.pth", count=1000, epochs=8)
    data = {
        name: dataset(write_photos(tmp_path / name, seed, held, 60), tmp_path / "decoded")
        for seed, (name, held) in enumerate(HELD.items())
    }
    plan = {
        "seed": 3,
        "model": {"name": f"torchvision:{NETWORK}", "train": "head", "weights": str(weights)},
        "data": {"name": "none", "classes": list(NEW)},
        "training": {"learning_rate": 0.01, "momentum": 0.9},
        "rounds": {"count": 10, "cohort": 3, "min_devices": 3, "quorum": 1.0},
        "evaluation": {"on": "devices", "every": 0},
        "simulation": {"devices": 3},
    }
    edgefed.simulate(plan, data=data, folder=tmp_path / "runs")
    (file,) = (tmp_path / "runs").rglob("model.safetensors")
    new, labels = photos(np.random.default_rng(99), NEW, 300)
    names = np.array(list(NEW))[labels]
    found = np.array(edgefed.load_model(file).predict(new).labels)
    assert np.mean(found == names) >= 0.55, "a third of them are guessed"
