"""Simulated runs of FedMA with networks of every kind, and its refusals."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.coordinator.storage.run_store import Store
from edgefed.learn.modeling.model_building import build
from edgefed.simulator.run import Simulation
from tests.numbers import write_numbers
from tests.run_fixture import Ticking
from tests.simulator.test_carried_state import recipe as text_recipe

RESNET20 = {"name": "resnet20", "channels": [4, 4, 6], "inner": [4, 4, 4, 4, 4, 4, 6, 6, 6]}
RESNET18 = {"name": "resnet18", "channels": [4, 4, 6, 6], "inner": [4] * 8}
VGG9 = {"name": "vgg9", "channels": [3] * 6, "hidden": [4, 4]}
MLP = {"name": "mlp", "hidden": [6]}
AT_ONCE = {"retrain_epochs": 0}
GROWING = {"gamma": 1e6, "sigma": 1e-3, "sigma0": 1.0, "most_growth": 1.5}
"""Settings with which few units are matched."""


def recipe(model: dict[str, Any], rounds: int = 1, **sections: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "seed": 5,
            "model": model,
            "data": {"name": "digits", "limit": 35, "partition": "iid"},
            "training": {"batch_size": 8, "learning_rate": 0.05},
            "rounds": {"count": rounds},
            "evaluation": {"on": "both"},
            "simulation": {"devices": 3, "engine": "sequential", "workers": 1},
            **sections,
            "algorithm": {"name": "fedma", **sections.pop("algorithm", {})},
        }
    )


def simulated(folder: Path, chosen: Recipe) -> tuple[dict[str, Any], list[str], ModelSection]:
    """Return the last row, the questions that were asked, and the network that was found.

    The saved weights are those of an ordinary network of that section, and all are finite.
    """
    simulation, asked = Simulation(chosen, folder, Ticking()), list[str]()
    simulation.journal.listen(
        lambda event, _: (
            asked.append(event.fields["question"])
            if event.kind == "exchange" and event.fields["phase"] == "broadcast"
            else None
        )
    )
    record = simulation.run().record
    assert record.status == "finished", record.reason
    path = folder / "runs" / record.run / "model.safetensors"
    weights = load_file(path)
    with safe_open(path, "np") as opened:
        section = ModelSection.model_validate(json.loads(opened.metadata()["model"]))
    assert all(np.isfinite(each).all() for each in weights.values())
    built = build(section, record.spec.shape, record.spec.classes, 1)  # type: ignore[union-attr]
    assert {name: each.shape for name, each in built.weights().items()} == {
        name: each.shape for name, each in weights.items()
    }
    with closing(Store(folder)) as store:
        row = store.rounds(record.run)[-1]
    assert None not in (row["loss"], row["device_loss"])
    return row, asked, section


@pytest.mark.parametrize(
    ("model", "settings", "steps"),
    [
        ({**RESNET18, "norm": "batch"}, {"decides": "ready"}, 18),
        ({**RESNET18, "norm": "batch"}, {**AT_ONCE, **GROWING}, 1),
    ],
    ids=["resnet18-ready", "resnet18-at-once"],
)
def test_statistics_are_measured_when_all_layers_are_matched(
    tmp_path: Path, model: dict[str, Any], settings: dict[str, Any], steps: int
) -> None:
    row, asked, section = simulated(tmp_path, recipe(model, algorithm=settings))
    assert asked == ["layer"] * (steps - 1) + ["fit", "statistics", "evaluate"]
    grows = "gamma" in settings
    assert (row["growth"] > 1.2) == grows
    assert (section.settings()["channels"][0] == 6) == grows


def test_group_normalisation_keeps_all_widths(tmp_path: Path) -> None:
    chosen = recipe({**RESNET20, "norm": "group"}, algorithm={**GROWING, **AT_ONCE})
    row, asked, section = simulated(tmp_path, chosen)
    assert asked == ["fit", "evaluate"]
    assert row["growth"] == 1.0
    assert list(section.settings()["inner"]) == RESNET20["inner"]


def test_vgg9_grows(tmp_path: Path) -> None:
    row, asked, section = simulated(tmp_path, recipe(VGG9, 2, algorithm=GROWING))
    assert asked == (["layer"] * 8 + ["fit", "evaluate"]) * 2
    assert row["growth"] > 1
    assert list(section.settings()["channels"]) == [4] * 6
    assert list(section.settings()["hidden"]) == [6, 6]


@pytest.mark.parametrize(("quadratic", "carried"), [(False, True), (True, False)])
def test_lstm(tmp_path: Path, quadratic: bool, carried: bool) -> None:
    text = text_recipe(tmp_path).model_dump(mode="json")
    text["training"]["carry_state"] = carried
    text["algorithm"] = {"name": "fedma", "quadratic": quadratic, **GROWING}
    text["evaluation"] = {"on": "both"}
    _, asked, section = simulated(tmp_path / "state", Recipe.model_validate(text))
    assert asked == ["layer", "layer", "fit", "evaluate"] * 2
    assert list(section.settings()["widths"]) == [6]


def test_numbers_are_averaged_by_samples(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "data.npz")
    chosen = recipe(
        MLP,
        2,
        data={"name": "npz", "path": str(path), "partition": "iid"},
        training={"loss": "squared_error", "batch_size": 16, "learning_rate": 0.01},
    )
    _, asked, _ = simulated(tmp_path / "state", chosen)
    assert asked == ["layer", "fit", "evaluate"] * 2
