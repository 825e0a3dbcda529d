"""Validation samples: apart from training and test, the same for all cases of a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgefed.algorithms.composed.registry import make
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.models.run_model import load_dataset, with_validation
from edgefed.coordinator.rounds.training_check import check_combination
from edgefed.data.base.types import Dataset
from edgefed.data.devices.partition import deal_recipe
from edgefed.data.sets.given import given_data
from edgefed.errors import EdgeFedError, UsageError
from edgefed.files.samples import Samples
from edgefed.simulator.run import Simulation
from tests.run_fixture import Ticking

pytest.importorskip("sklearn", reason="the digits are not installed")

TABLES: dict[str, Any] = {
    "model": {"name": "mlp", "hidden": []},
    "data": {"limit": 200, "partition": "iid"},
    "rounds": {"count": 2},
    "simulation": {"devices": 2, "workers": 1},
    "evaluation": {"validation_share": 0.25},
}


def recipe(**tables: dict[str, Any]) -> Recipe:
    merged = {name: {**TABLES.get(name, {}), **tables.get(name, {})} for name in {*TABLES, *tables}}
    return Recipe.model_validate(merged)


def images(samples: Samples) -> list[bytes]:
    return sorted(np.ascontiguousarray(image).tobytes() for image in np.asarray(samples.inputs))


def test_validation_samples_are_training_samples_that_no_device_has() -> None:
    whole = load_dataset(recipe(evaluation={"validation_share": 0.0}), None)
    split = load_dataset(recipe(), None)
    assert whole.validation is None
    assert split.validation is not None
    assert len(split.validation) == round(0.25 * len(whole.train))
    assert images(split.test) == images(whole.test)
    assert sorted(images(split.train) + images(split.validation)) == images(whole.train)
    shards = deal_recipe(split, recipe(), 0.5)
    parts = [part for shard in shards for part in (shard.train, shard.test)]
    dealt = [image for part in parts for image in images(part)]
    assert sorted(dealt) == images(split.train)
    counts, wanted = (
        np.bincount(part.targets, minlength=10) for part in (split.validation, whole.train)
    )
    assert np.abs(counts - 0.25 * wanted).max() < 1.001, "in proportion to the labels"


def test_the_split_follows_the_seed_and_nothing_else() -> None:
    def chosen(**tables: Any) -> list[bytes]:
        validation = load_dataset(recipe(**tables), None).validation
        assert validation is not None
        return images(validation)

    other = {"algorithm": {"name": "fednova"}, "training": {"learning_rate": 0.5}}
    assert chosen(**other) == chosen()
    whole = load_dataset(recipe(evaluation={"validation_share": 0.0}), None)
    seeds = (recipe().model_copy(update={"seed": seed}) for seed in (1, 1, 2))
    splits = [with_validation(each, whole).validation for each in seeds]
    first, same, second = ([] if part is None else images(part) for part in splits)
    assert chosen() == first == same
    assert first != second


def test_groups_stay_with_their_samples() -> None:
    labels = np.arange(40) % 4
    train = Samples(np.arange(40, dtype=np.float32).reshape(40, 1), labels)
    whole = Dataset(train, train.take(np.zeros(0, np.int64)), 4, (1,), groups=np.arange(40) // 10)
    split = with_validation(recipe(), whole)
    assert split.groups is not None
    assert len(split.train) == len(split.groups) == 30
    assert split.groups.tolist() == [int(value) // 10 for (value,) in split.train.inputs]


def test_rounds_have_scores_of_the_validation_samples(tmp_path: Path) -> None:
    """The last of them as the saved model gives them, computed here without torch."""
    rows: list[dict[str, Any]] = []
    simulation = Simulation(recipe(), tmp_path, Ticking())
    simulation.journal.listen(
        lambda event, _: rows.append(dict(event.fields)) if event.kind == "scored" else None
    )
    ended = simulation.run()
    weights = load_file(ended.folder / "model.safetensors")
    validation = load_dataset(recipe(), None).validation
    assert validation is not None
    inputs = np.asarray(validation.inputs, np.float64).reshape(len(validation), -1)
    weight, bias = (weights[f"out.{name}"].astype(np.float64) for name in ("weight", "bias"))
    outputs = inputs @ weight.T + bias
    own = outputs[np.arange(len(outputs)), validation.targets]
    loss = float(np.mean(np.log(np.exp(outputs).sum(axis=1)) - own))
    accuracy = float(np.mean(outputs.argmax(axis=1) == validation.targets))
    assert rows[-1]["validation_loss"] == pytest.approx(loss, abs=1e-5)
    assert rows[-1]["validation_accuracy"] == pytest.approx(accuracy)
    assert rows[-1]["validation_loss"] != rows[-1]["loss"]
    assert all("validation_macro_f1" in row for row in rows)


def test_a_run_may_stop_by_its_validation_loss(tmp_path: Path) -> None:
    stopping = {"best_metric": "validation_loss", "stop_patience": 1, "stop_min_change": 100.0}
    chosen = recipe(evaluation={"validation_share": 0.25, **stopping}, rounds={"count": 9})
    record = Simulation(chosen, tmp_path, Ticking()).run().record
    assert record.status == "finished"
    assert record.rounds == 9
    assert record.round == 2
    assert "no better validation_loss" in record.reason


@pytest.mark.parametrize(
    ("tables", "told", "code"),
    [
        ({"evaluation": {"on": "devices"}}, "devices alone test", "evaluation.validation"),
        (
            {"evaluation": {"validation_share": 0.0, "best_metric": "validation_loss"}},
            "needs evaluation.validation_share",
            "evaluation.metric",
        ),
    ],
)
def test_recipes_that_cannot_validate_are_refused(tables: Any, told: str, code: str) -> None:
    chosen = recipe(**tables)
    with pytest.raises(EdgeFedError, match=told) as caught:
        check_combination(chosen, make(chosen))
    assert caught.value.code == code


def test_samples_of_devices_alone_are_not_taken(tmp_path: Path) -> None:
    part = (np.zeros((8, 4), np.float32), np.arange(8) % 2)
    chosen = recipe(data={"name": "memory", "limit": 0})
    given = given_data({"a": part, "b": part}, part, chosen)
    with pytest.raises(UsageError, match="all are devices' own") as caught:
        Simulation(chosen, tmp_path, Ticking(), given=given)
    assert caught.value.code == "evaluation.validation"
