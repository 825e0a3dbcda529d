"""What only simulations have of supplements: mixes with samples of all devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.events.base.model import Event
from edgefed.simulator.run import Simulation
from tests.run_fixture import EXACT, Ticking


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """60 images of 8 by 8 pixels with three labels to train on, and 15 to test on."""
    rng = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 60), ("test", 15)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (count, 8, 8)).astype(np.uint8)
        arrays[f"y_{part}"] = np.arange(count) % 3
    np.savez(tmp_path / "images.npz", **arrays)
    return tmp_path / "images.npz"


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_mixes_may_have_samples_of_all_devices(
    images: Path, tmp_path: Path, normalize: bool, workers: int
) -> None:
    recipe = Recipe.model_validate(
        {
            "model": {"name": "mlp", "hidden": [4]},
            "data": {
                "name": "npz",
                "path": str(images),
                "normalize": normalize,
                "classes_per_device": 1,
            },
            "labels": {"supplement": 0.5, "mix_share": 1, "noise": "white", "others": "global"},
            "rounds": {"count": 1},
            "simulation": {"devices": 3, "workers": workers},
            "wire": EXACT,
        }
    )
    told: list[str] = []

    def hear(event: Event, _: int) -> None:
        told.append(str(event.fields.get("text", "")))

    simulation = Simulation(recipe, tmp_path / "state", Ticking())
    simulation.journal.listen(hear)
    assert simulation.run().record.status == "finished"
    assert [text for text in told if "60 of 60 mixes are there" in text], told
