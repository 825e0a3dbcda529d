"""Regression: squared error in a recipe, on virtual devices, from the targets to what is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgefed.config.recipes.recipe import Recipe
from edgefed.data.base.types import Dataset
from edgefed.errors import DataError
from edgefed.simulator.run import Simulation
from edgefed.simulator.sweep.plan import trial_digest
from tests.cli.commands import edgefed
from tests.numbers import FEATURES, least_squares, numbered_shards, numbers, write_numbers
from tests.run_fixture import EXACT, Ticking, World, shards
from tests.simulator.work import finished

SQUARED = {"loss": "squared_error", "batch_size": 64, "learning_rate": 0.3}
LINEAR = {"name": "mlp", "hidden": []}


def recipe(path: Path, name: str = "fedavg", **sections: Any) -> Recipe:
    """Return a recipe in which a round is one step on all of a device's samples."""
    algorithm = {"name": name, **sections.pop("algorithm", {})}
    return Recipe.model_validate(
        {
            "seed": 5,
            "model": LINEAR,
            "data": {"name": "npz", "path": str(path), "partition": "iid"},
            "algorithm": algorithm,
            "training": SQUARED,
            "rounds": {"count": 3},
            "simulation": {"devices": 4, "workers": 1},
            "wire": EXACT,
            **sections,
        }
    )


def digest(chosen: Recipe, folder: Path) -> str:
    return finished(chosen, folder).record.weights_digest


def test_a_linear_model_ends_in_the_least_squares_solution(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "data.npz")
    chosen = recipe(path, rounds={"count": 60}, evaluation={"every": 0})
    result = finished(chosen, tmp_path / "state")
    found = load_file(result.folder / "model.safetensors")
    weights, offsets = least_squares(numbers(60, 1))
    np.testing.assert_allclose(found["out.weight"].T, weights, atol=1e-3)
    np.testing.assert_allclose(found["out.bias"], offsets, atol=1e-3)
    test = numbers(20, 2)
    error = float(((test.inputs @ weights + offsets - test.targets) ** 2).mean())
    assert result.record.loss == pytest.approx(error, rel=1e-2)
    assert result.record.accuracy is None


def test_without_mixing_averages_change_no_bit_and_with_it_they_do(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "data.npz")
    model = {"name": "mlp", "hidden": [6]}
    small = {**SQUARED, "batch_size": 4, "learning_rate": 0.05}
    digests = [digest(recipe(path, model=model, training=small), tmp_path / "plain")]
    for ratio in (0.0, 0.2):
        settings = {"mixup_ratio": ratio, "group_size": 5}
        mixed = recipe(path, "fedmix", model=model, training=small, algorithm=settings)
        digests.append(digest(mixed, tmp_path / str(ratio)))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("localmix", {"split": 1}),
        ("fedopt", {"server": "adam"}),
        ("fedmix", {"group_size": 5, "split": 1}),
        ("naivemix", {"group_size": 5, "packing": "bf16"}),
    ],
)
def test_every_method_learns_numbers(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "data.npz")
    training = {**SQUARED, "batch_size": 8, "learning_rate": 0.1}
    chosen = recipe(
        path,
        name,
        algorithm=settings,
        model={"name": "mlp", "hidden": [8]},
        training=training,
        rounds={"count": 12},
    )
    result = finished(chosen, tmp_path / "state")
    variance = float(numbers(20, 2).targets.var())
    assert result.record.loss is not None
    assert result.record.loss < variance / 2
    told = (result.folder / "events.jsonl").read_text()
    averaged = name in ("fedmix", "naivemix")
    assert ("4 of 4 devices shared averaged data" in told) is averaged


def _world(folder: Path, **sections: Any) -> World:
    chosen = recipe(folder / "unused.npz", data={"name": "none"}, **sections)
    here = World(folder, chosen, numbered_shards((8, 12, 6), tested=4), tests=0)
    here.dataset = Dataset(numbers(0, 1), numbers(15, 3), 2, (FEATURES,))
    return here


@pytest.mark.parametrize("where", ["both", "coordinator"])
def test_rounds_have_a_loss_and_no_accuracy(where: str, tmp_path: Path) -> None:
    here = _world(tmp_path, evaluation={"on": where})
    record = here.engine().run()
    rows = here.rows
    here.close()
    assert (record.status, record.accuracy) == ("finished", None)
    assert record.loss == rows[-1]["loss"] < rows[0]["loss"]
    assert {row["accuracy"] for row in rows} == {None}
    assert all(("device_loss" in row) is (where != "coordinator") for row in rows)
    assert not any("device_accuracy" in row for row in rows)


def test_devices_with_labels_refuse_and_say_why(tmp_path: Path) -> None:
    chosen = recipe(tmp_path / "unused.npz", data={"name": "none"}, rounds={"count": 1})
    here = World(tmp_path, chosen, shards((5, 6)), tests=0)
    record = here.engine().run()
    here.close()
    assert (record.status, record.error) == ("failed", "round.quorum")
    assert "its targets are labels, and squared error needs numbers (training.loss)" in (
        record.reason
    )


@pytest.mark.parametrize(
    ("loss", "path", "told"),
    [
        ("cross_entropy", "numbers.npz", "are numbers, not the label distributions"),
        ("squared_error", "labels.npz", "are labels, and squared error needs numbers"),
    ],
)
def test_a_mismatch_is_said_before_anything_begins(
    loss: str, path: str, told: str, tmp_path: Path
) -> None:
    write_numbers(tmp_path / "numbers.npz")
    np.savez(tmp_path / "labels.npz", x=np.zeros((20, 3)), y=np.arange(20) % 2)
    chosen = recipe(tmp_path / path, training={"loss": loss})
    with pytest.raises(DataError, match=told) as caught:
        Simulation(chosen, tmp_path / "state", Ticking())
    assert caught.value.code == "data.targets"
    assert "training.loss" in caught.value.hint
    assert not (tmp_path / "state").exists()


def test_a_coordinator_says_a_mismatch_before_it_waits_for_devices(tmp_path: Path) -> None:
    here = World(tmp_path, recipe(tmp_path / "unused.npz"), shards((5,)))
    record = here.engine().run()
    asked = here.seen("exchange")
    here.close()
    assert (record.status, record.error, asked) == ("failed", "data.targets", [])


def test_the_default_loss_spelt_out_is_the_same_result_and_another_is_not(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    losses: tuple[dict[str, Any], ...] = ({}, {"loss": "cross_entropy"}, {"loss": "squared_error"})
    names = [trial_digest(recipe(path, training=loss)) for loss in losses]
    assert names[0] == names[1] != names[2]


def test_what_only_fleets_have_changes_no_result_of_a_simulation(
    tmp_path: Path,
) -> None:
    fleets: tuple[dict[str, Any], ...] = (
        *({}, {"lost_grace": 5}, {"lost_grace": "deadline"}),
        {"site_sums": "never"},
    )
    names = {trial_digest(recipe(tmp_path / "data.npz", rounds=each)) for each in fleets}
    assert len(names) == 1


TEXT = """
[data]
name = "npz"
path = "yard.npz"
partition = "iid"
[model]
name = "mlp"
hidden = []
[training]
loss = "squared_error"
batch_size = 64
learning_rate = 0.3
[rounds]
count = 5
[simulation]
devices = 3
workers = 1
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A user's recipe beside a small NPZ file with one number for a target."""
    write_numbers(tmp_path / "yard.npz", outputs=1)
    path = tmp_path / "yard.toml"
    path.write_text(TEXT)
    return path


def test_a_user_runs_a_regression_and_reads_what_it_came_to(written: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    told = edgefed("sim", "run", written, state=state)
    assert told.code == 0, told.err
    lines = dict(line.split(maxsplit=1) for line in told.out.splitlines())
    assert "accuracy" not in lines
    again = edgefed("sim", "run", written, "--json", state=state).json
    assert again["accuracy"] is None
    assert lines["loss"] == f"{again['loss']:.4g}"
    assert again["loss"] < float(numbers(20, 2, 1).targets.var())
    runs = sorted((state / "simulations" / "runs").iterdir())
    page = tmp_path / "page.html"
    assert edgefed("run", "report", runs[0], "--out", page, state=state).code == 0
    assert "nothing was measured" in page.read_text()
    table = (runs[0] / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[1] for row in table[1:]] == [""] * 5


def test_a_user_sees_the_averaged_targets(written: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    mixed = ("--algorithm", "fedmix", "--set", "algorithm.group_size=7")
    assert edgefed("sim", "run", written, *mixed, state=state).code == 0
    found = edgefed("run", "means", "--local", "--json", state=state).json
    train = numbers(60, 1, 1).targets
    assert found["entries"] == len(found["targets"]) == 6
    weighted = sum(target for (target,) in found["targets"]) / 6
    assert weighted == pytest.approx(float(train.mean()), abs=0.5)
    head, first, *_ = edgefed("run", "means", "--local", state=state).out.splitlines()
    assert head.split() == ["ENTRY", "TARGET"]
    assert float(first.split()[1]) == pytest.approx(found["targets"][0][0], rel=1e-3)


def test_a_user_sees_who_holds_how_much_without_labels(written: Path, tmp_path: Path) -> None:
    told = edgefed("data", "show", written, state=tmp_path / "state").out.splitlines()
    assert told[0].split() == ["DEVICE", "SAMPLES"]
    assert [line.split()[1] for line in told[1:4]] == ["20", "20", "20"]
    assert told[-2:] == [
        "60 training and 0 test samples of shape 3, with a number for a target",
        "3 devices of 20 to 20 samples",
    ]
    shards_folder = tmp_path / "shards"
    split = edgefed("data", "split", written, "--out", shards_folder, "--json")
    assert (split.json["classes"], split.json["totals"]["labels"]) == (1, [])
    one = edgefed("data", "show", shards_folder / "device-00.npz", "--json").json
    assert one["devices"] == [{"device": "device-00", "train": 20, "test": 0, "labels": []}]
