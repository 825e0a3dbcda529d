"""What only simulations have of supplements: mixes of all devices' samples, and noise kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.config.recipe import Recipe
from edgefed.events.model import Event
from edgefed.simulator.run import Simulation
from tests.run_fixture import EXACT, Ticking
from tests.simulator.sweeps import Swept, planned, write


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


def test_a_sweep_draws_the_noise_of_a_seed_once(tmp_path: Path) -> None:
    recipe = """
[model]
name = "mlp"
hidden = [4]
[data]
limit = 100
classes_per_device = 5
[labels]
supplement = 0.2
mix_share = 0
noise = "white"
[rounds]
count = 1
[simulation]
devices = 2
workers = 1
"""
    sweep = 'recipe = "recipe.toml"\nseeds = [1]\n[grid]\ntraining.learning_rate = [0.05, 0.5]\n'
    plan = planned(write(tmp_path / "sweep", sweep, recipe))
    swept = Swept(tmp_path / "out")
    seen: list[dict[str, int]] = []
    for case in plan.cases:
        assert not swept.run(type(plan)((case,), plan.seeds, None)).failures
        files = [path for path in (swept.folder / "noise").iterdir() if path.is_file()]
        seen.append({path.name: path.stat().st_ino for path in files})
    assert len(seen[0]) == 10, "five labels that each of two devices lacks"
    assert seen[0] == seen[1], "the second run wrote none"
