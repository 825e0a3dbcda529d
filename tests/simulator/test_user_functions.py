"""Users' own losses and metrics in whole runs of virtual devices, and what is refused before."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.registry import make
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import EdgeFedError
from edgefed.simulator.run import Simulation, SimulationResult
from tests.numbers import write_numbers
from tests.run_fixture import EXACT, Ticking
from tests.simulator.work import events, rows

HERE = "tests.learn.own_functions"


def own(*names: str) -> list[str]:
    return [f"{HERE}:{name}" for name in names]


def recipe(**sections: Any) -> Recipe:
    training = {"batch_size": 8, "learning_rate": 0.1, **sections.pop("training", {})}
    return Recipe.model_validate(
        {
            "seed": 5,
            "model": {"name": "mlp", "hidden": [8]},
            "data": {"limit": 240, "classes_per_device": 4},
            "training": training,
            "rounds": {"count": 2, **sections.pop("rounds", {})},
            "simulation": {"devices": 3, "workers": 1, **sections.pop("simulation", {})},
            "wire": EXACT,
            **sections,
        }
    )


def simulate(chosen: Recipe, folder: Path) -> SimulationResult:
    return Simulation(chosen, folder, Ticking()).run()


def test_a_users_loss_trains_and_is_reported(tmp_path: Path) -> None:
    ours = rows(simulate(recipe(), tmp_path / "ours"))
    same = rows(simulate(recipe(training={"loss": own("cross_entropy")[0]}), tmp_path / "same"))
    other = rows(simulate(recipe(training={"loss": own("focal")[0]}), tmp_path / "other"))
    for row, again, focal in zip(ours, same, other, strict=True):
        assert again["loss"] == pytest.approx(row["loss"], rel=1e-4)
        assert again["train_loss"] == pytest.approx(row["train_loss"], rel=1e-4)
        assert focal["loss"] < row["loss"]
        assert focal["accuracy"] is not None
        assert focal.keys() == row.keys()


@pytest.mark.parametrize(("engine", "workers"), [("auto", 2), ("stacked", 1)])
def test_a_metric_is_summed_over_devices_and_told_like_any_score(
    tmp_path: Path, engine: str, workers: int
) -> None:
    chosen = recipe(
        evaluation={"on": "both", "metrics": own("even_recall", "of_nothing")},
        training={"epochs": 3, "learning_rate": 0.3},
        simulation={"engine": engine, "workers": workers},
    )
    result = simulate(chosen, tmp_path)
    last = rows(result)[-1]
    assert 0 < last["even_recall"] < 1
    assert 0 < last["device_even_recall"] < 1
    assert last["even_recall"] != last["device_even_recall"]
    assert "of_nothing" not in last
    with (result.folder / "metrics.csv").open(newline="") as file:
        assert [float(row["even_recall"]) for row in csv.DictReader(file)] == [
            row["even_recall"] for row in rows(result)
        ]
    assert events(result, "scored")[-1]["even_recall"] == last["even_recall"]


def test_a_metric_weighs_every_sample_the_same_whatever_the_weighting(tmp_path: Path) -> None:
    """A tenth of every sample's one, over devices of different sizes."""
    for weighting in ("samples", "devices"):
        section = {"on": "devices", "weighting": weighting, "metrics": own("tenth")}
        chosen = recipe(evaluation=section, data={"limit": 240, "partition": "quantity"})
        assert rows(simulate(chosen, tmp_path / weighting))[-1]["tenth"] == pytest.approx(0.1)


def test_a_run_stops_early_on_a_users_metric(tmp_path: Path) -> None:
    section = {
        "metrics": own("even_recall"),
        "best_metric": "even_recall",
        "stop_patience": 1,
        "stop_min_change": 10,
    }
    record = simulate(recipe(evaluation=section, rounds={"count": 9}), tmp_path).record
    assert (record.status, record.round) == ("finished", 2)
    assert "no better even_recall in 1 evaluation" in record.reason


def test_regression_with_a_loss_and_a_metric_of_ones_own(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "data.npz")
    chosen = recipe(
        model={"name": "mlp", "hidden": []},
        data={"name": "npz", "path": str(path), "partition": "iid"},
        training={"loss": own("huber")[0], "learning_rate": 0.3},
        rounds={"count": 8},
        evaluation={"on": "devices", "metrics": own("absolute_error")},
    )
    found = rows(simulate(chosen, tmp_path / "state"))
    assert found[-1]["loss"] < found[0]["loss"] / 2
    assert found[-1]["absolute_error"] < found[0]["absolute_error"]
    assert all(row["accuracy"] is None for row in found)
    assert not {"balanced_accuracy", "top5_accuracy"} & found[-1].keys()


def test_supplements_of_numbers_are_refused_with_a_users_loss(tmp_path: Path) -> None:
    chosen = recipe(
        model={"name": "mlp", "hidden": []},
        data={"name": "npz", "path": str(write_images_with_numbers(tmp_path)), "partition": "iid"},
        training={"loss": own("huber")[0]},
        labels={"supplement": 0.5},
    )
    with pytest.raises(EdgeFedError) as caught:
        simulate(chosen, tmp_path / "state")
    assert caught.value.code == "label.unfit"


def write_images_with_numbers(folder: Path) -> Path:
    """Write images whose targets are two numbers each."""
    rng = np.random.default_rng(1)
    sizes = {"train": 60, "test": 20}
    arrays: dict[str, Any] = {
        f"x_{part}": rng.random((n, 1, 8, 8), np.float32) for part, n in sizes.items()
    }
    arrays |= {f"y_{part}": rng.random((n, 2), np.float32) for part, n in sizes.items()}
    np.savez(folder / "images.npz", **arrays)
    return folder / "images.npz"


def test_a_device_whose_code_fails_says_so_in_one_line_and_the_round_goes_on(
    tmp_path: Path,
) -> None:
    chosen = recipe(
        training={"loss": own("fails_on_eight")[0]},
        data={"limit": 240, "partition": "shards", "classes_per_device": 1},
        simulation={"devices": 4},
        evaluation={"on": "devices"},
    )
    result = simulate(chosen, tmp_path)
    assert result.record.status == "finished", result.record.reason
    failed = [each for each in events(result, "reply") if each["outcome"] == "failed"]
    accepted = [each for each in events(result, "reply") if each["outcome"] == "accepted"]
    assert failed
    assert {each["reason"] for each in failed} == {
        f"The loss {HERE}:fails_on_eight failed: ValueError: an eight.  [loss.failed]; try: it is"
        " called as function(outputs, targets) and returns a loss per sample, or their mean"
    }
    assert {each["device"] for each in accepted}.isdisjoint(each["device"] for each in failed)


@pytest.mark.parametrize(
    ("sections", "code", "told"),
    [
        ({"algorithm": {"name": "fedmix"}}, "algorithm.loss", "cannot be mixed"),
        ({"algorithm": {"name": "localmix"}}, "algorithm.loss", "localmix"),
        ({"algorithm": {"name": "fedlc"}}, "algorithm.loss", "fedlc"),
        ({"algorithm": {"name": "fedmoe"}}, "algorithm.loss", "fedmoe"),
        ({"algorithm": {"name": "ensemble"}}, "algorithm.loss", "ensemble"),
        ({"training": {"loss": own("fails")[0]}}, "loss.failed", "no such thing"),
        ({"training": {"loss": own("absent")[0]}}, "loss.import", "has no absent"),
        ({"evaluation": {"metrics": own("absent")}}, "metric.import", "has no absent"),
        ({"evaluation": {"metrics": own("tenth", "tenth")}}, "metric.name", "'tenth'"),
        ({"evaluation": {"metrics": [f"{HERE}:loss"]}}, "metric.name", "'loss'"),
        ({"evaluation": {"metrics": [f"{HERE}:device_x"]}}, "metric.name", "'device_x'"),
        ({"evaluation": {"metrics": [f"{HERE}:größe"]}}, "metric.name", "'größe'"),
        ({"evaluation": {"metrics": [f"{HERE}:{'x' * 65}"]}}, "metric.name", "'xxxx"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, sections: dict[str, Any], code: str, told: str
) -> None:
    training = {"loss": own("focal")[0], **sections.pop("training", {})}
    with pytest.raises(EdgeFedError) as caught:
        Simulation(recipe(training=training, **sections), tmp_path / "state", Ticking())
    assert caught.value.code == code
    assert told in caught.value.message
    assert not (tmp_path / "state" / "runs").exists()


@pytest.mark.parametrize("name", ["ifca", "pfnm"])
def test_other_algorithms_train_with_a_users_loss(tmp_path: Path, name: str) -> None:
    chosen = recipe(
        algorithm={"name": name}, training={"loss": own("focal")[0]}, evaluation={"on": "both"}
    )
    assert make(chosen).takes_user_loss
    record = simulate(chosen, tmp_path).record
    assert record.status == "finished", record.reason
    assert record.loss is not None
    assert np.isfinite(record.loss)
