"""Fine-tuning on photos in agents' folders ends in the bits of a simulation of the same photos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import edgefed
from device_agent.daemon.own_data import load_data
from edgefed.config.fleet.settings import AgentSettings
from edgefed.config.recipes.recipe import Recipe
from edgefed.data.base.types import Dataset
from edgefed.files.samples import stored
from tests.faults.fleet_processes import FLEET, fleet
from tests.faults.photos.photo_folders import CLASSES, NETWORK, SIDE, write_photos, write_weights

pytestmark = [pytest.mark.slow, pytest.mark.mosquitto]

HOLDOUT = 0.2
HELD = {"device-00": CLASSES, "device-01": CLASSES, "device-02": CLASSES[1:]}
"""Classes that each device has photos of."""


def recipe(weights: Path, **sections: dict[str, Any]) -> Recipe:
    tables: dict[str, Any] = {
        "name": "fine-tuned",
        "seed": 11,
        "model": {"name": f"torchvision:{NETWORK}", "weights": str(weights), "train": "last:2"},
        "data": {"name": "none", "classes": list(CLASSES)},
        "images": {"resized_crop": 0.5, "flip": True, "brightness": 0.3},
        "training": {
            "epochs": 2,
            "batch_size": 4,
            "optimizer": "adamw",
            "learning_rate": 0.002,
            "weight_decay": 0.1,
            "schedule": "cosine",
            "warm_up": 0.2,
            "max_gradient_norm": 0.5,
            "label_smoothing": 0.1,
        },
        "rounds": {"count": 2, "cohort": 3, "min_devices": 3, "quorum": 1.0},
        "evaluation": {"on": "devices"},
        "wire": {"uplink": "fp32", "downlink": "fp32"},
        "simulation": {"devices": 3, "holdout": HOLDOUT},
    }
    for name, keys in sections.items():
        tables[name] = {**tables[name], **keys}
    return Recipe.model_validate(tables)


def dataset(source: str, decoded: Path) -> Dataset:
    """Return a device's photos as its agent reads them."""
    found = load_data(AgentSettings(data=source, holdout=HOLDOUT, state=decoded, name="other"))
    assert stored(found.train.inputs) is not None, "they were copied into memory"
    train, test, names = found.train, found.test, found.class_names
    return Dataset(train, test, found.classes, found.shape, class_names=names)


def test_a_fine_tuned_augmented_adamw_run_has_the_bits_of_a_simulation(tmp_path: Path) -> None:
    sources = {}
    for seed, (device, classes) in enumerate(HELD.items()):
        folder = write_photos(tmp_path / device, seed, classes)
        (folder / "classes.txt").write_text("\n".join(CLASSES))
        sources[device] = f"folder:{folder}?size={SIDE}"
    weights = write_weights(tmp_path / "weights.pth")
    plan = recipe(weights)
    with fleet(tmp_path / "home", plan, sources=sources, holdout=HOLDOUT) as home:
        run = home.begin()
        real = home.finish(run)
        model = load_file(
            tmp_path / "home" / "state" / "coordinator" / FLEET / "runs" / run / "model.safetensors"
        )
    assert real["status"] == "finished", real["reason"]
    assert (real["round"], real["devices"]) == (2, 3)
    assert len([*(tmp_path / "home").glob("state/data/decoded/*/pixels-*")]) == len(sources)
    given = {name: tensor.numpy() for name, tensor in torch.load(weights).items()}
    moved = {name for name in given if not np.array_equal(given[name], model[name])}
    assert {name.partition(".")[0] for name in moved} == {"conv5", "fc"}

    photos = {name: dataset(source, tmp_path / "sim") for name, source in sources.items()}
    virtual = edgefed.simulate(plan, data=photos)
    assert real["weights_digest"] == virtual.weights_digest
    assert real["accuracy"] == virtual.scores["accuracy"]
    assert all(np.array_equal(model[name], virtual.weights[name]) for name in model)

    plain = edgefed.simulate(recipe(weights, images={"brightness": 0.0}), data=photos)
    assert plain.weights_digest != virtual.weights_digest, "the transforms count"
