"""Three devices with photos, a pretrained network whose head is trained, and new photos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgefed
from edgefed.config.recipes.recipe import Recipe
from tests.faults.fleet_processes import FLEET, FleetProcesses, fleet
from tests.generated_photos import (
    NETWORK,
    NEW,
    SEEN_SIDE,
    photos,
    write_photos,
    write_pretrained,
)

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

HELD = {"cam-1": ("circle", "cross"), "cam-2": ("cross", "star", "circle"), "cam-3": ("star",)}
"""Classes that each device has photos of."""

PHOTOS = 60
"""Photos of each class on each device."""

FULL = 3 * 2 * 2 * 1_520_931
"""Bytes of all weights in bf16, to three devices and back."""


def recipe(**model: Any) -> Recipe:
    keys = {"name": f"torchvision:{NETWORK}", "train": "head", **model}
    tables = {
        "name": "photos",
        "seed": 3,
        "model": keys,
        "data": {"name": "none", "classes": list(NEW)},
        "training": {"learning_rate": 0.01, "momentum": 0.9},
        "rounds": {"count": 20, "cohort": 3, "min_devices": 3, "quorum": 1.0},
        "evaluation": {"on": "devices", "every": 0},
        "simulation": {"devices": 3},
    }
    return Recipe.model_validate(tables)


def model_file(home: FleetProcesses, run: str) -> Path:
    runs = home.folder / "state" / "coordinator" / FLEET / "runs"
    return runs / run / "model.safetensors"


def test_a_pretrained_network_learns_from_a_few_photos_on_each_device(tmp_path: Path) -> None:
    weights = write_pretrained(tmp_path / "pretrained.pth", count=1500, epochs=10)
    sources = {
        name: f"folder:{write_photos(tmp_path / name, seed, held, PHOTOS)}?size={SEEN_SIDE}"
        for seed, (name, held) in enumerate(HELD.items())
    }
    trained = recipe(weights=str(weights))
    with fleet(tmp_path / "home", trained, sources=sources) as home:
        run = home.begin()
        ended = home.finish(run)
        other = home.begin(recipe())  # a trunk of random weights
        assert home.finish(other)["status"] == "finished"
        files = [model_file(home, each) for each in (run, other)]
    assert ended["status"] == "finished", ended["reason"]

    new, labels = photos(np.random.default_rng(99), NEW, 300)
    accuracies = []
    for file in files:
        found = edgefed.load_model(file).predict(new)
        names = np.array(list(NEW))[labels]
        accuracies.append(float(np.mean(np.array(found.labels) == names)))
    assert accuracies[0] >= 0.7
    assert accuracies[0] >= accuracies[1] + 0.3

    first, *later = ended["history"]
    assert first["sent"] > 3 * 4 * 1_500_000, "the frozen weights, to each device"
    assert max(row["sent"] + row["received"] for row in later) < FULL / 100
