"""The study of matched averaging, on a few of scikit-learn's digits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.matching_study.__main__ import CaseRow, Study, curves
from benchmarks.matching_study.local_models import averaged
from benchmarks.matching_study.setups import (
    SETUPS,
    Case,
    cases,
    image_file,
    role_file,
)
from benchmarks.studies.runs import Runner
from benchmarks.studies.trials import Part
from edgefed.algorithms.composed.registry import make
from edgefed.data.sets.shakespeare import read_roles
from edgefed.simulator.sweep.statistics import Spread, spread

pytest.importorskip("sklearn", reason="the digits are not installed")

MNIST = SETUPS["mnist"]
TINY = replace(
    MNIST,
    recipe={**MNIST.recipe, "model": {"name": "mlp", "hidden": [6]}},
    layers=2,
    devices=3,
    size=90,
    rates=(0.01, 0.05),
    lengths=((1, 4),),
    one_shot=(1,),
)


def test_no_image_is_in_two_parts(tmp_path: Path) -> None:
    files = [image_file(tmp_path, tmp_path, part, 200, 1) for part in ("tune", "test")]
    tune, test = (dict(np.load(file)) for file in files)
    parts = [tune["x_train"], tune["x_test"], test["x_train"], test["x_test"]]
    images = [{image.tobytes() for image in part} for part in parts]
    assert [len(each) for each in images[::2]] == [200, 200]
    assert len(set.union(*images)) == sum(map(len, images))


def test_no_role_is_in_two_parts(tmp_path: Path) -> None:
    folder = tmp_path / "shakespeare"
    folder.mkdir()
    records = [{"role": str(n), "text": "x" * (40 + n % 2 * 60)} for n in range(20)]
    text = "".join(json.dumps(each) + "\n" for each in records)
    (folder / "shakespeare_roles.jsonl").write_text(text)

    def roles(part: Part, seed: int) -> dict[str, str]:
        return read_roles(role_file(tmp_path, tmp_path, part, 4, 80, seed))

    tune, test, other = roles("tune", 101), roles("test", 1), roles("test", 2)
    assert not set(tune) & (set(test) | set(other))
    assert {len(text) for text in test.values()} == {80}, "only long enough ones, cut to a length"
    assert len(test) == 4


def test_equal_epochs_are_fewer_rounds_where_a_round_is_a_pass() -> None:
    rounds = {
        case.method: case.rounds(MNIST) for case in cases(MNIST, "rounds") if case.epochs == 5
    }
    assert rounds["FedAvg"] == MNIST.layers * rounds["FedMA"]
    longest = cases(MNIST, "one-shot")[-1]
    assert longest == Case("FedAvg", MNIST.layers * max(MNIST.one_shot))


def test_every_method_has_settings_of_its_algorithm(tmp_path: Path) -> None:
    for setup in SETUPS.values():
        for case in cases(setup, "one-shot") + cases(setup, "rounds"):
            recipe = case.recipe(setup, {"rate": 0.01}, tmp_path / "images.npz", 1)
            assert make(recipe).name == recipe.algorithm.name


def test_a_study_chooses_tests_and_does_not_repeat(tmp_path: Path) -> None:
    study = Study("tiny", TINY, tmp_path, Runner(tmp_path / "work"), (1, 2))
    wanted = [Case(method, 1, 4) for method in ("FedAvg", "FedMA")]
    rows = [row for row in map(study.row, wanted) if row is not None]
    assert [len(row.runs) for row in rows] == [2, 2]
    for row in rows:
        assert row.tuning[row.chosen] == max(row.tuning.values())
    assert rows[1].runs[0].values("round") == [1, 2], "a pass has two epochs"
    assert rows[1].to_json()["growth"][0] >= 1
    assert rows[0].to_json()["growth"] == [None, None]
    curve = curves(TINY, rows)["by epochs, in rounds of FedAvg"]
    assert curve[1] == {**curve[1], "method": "FedMA", "1": None, "2": _after(rows[1], 1)}

    files = sorted((tmp_path / "work/runs").iterdir())
    assert len(files) == 2 + 2 + 3 + 2, "two rates, and a second mass for one of them"
    lacking = Study("tiny", TINY, tmp_path, Runner(tmp_path / "work", lacking=True), (1, 2))
    again = [row for row in map(lacking.row, wanted) if row is not None]
    assert [row.final for row in again] == [row.final for row in rows]
    files[0].unlink()
    assert len([row for row in map(lacking.row, wanted) if row is not None]) == 1


def _after(row: CaseRow, number: int) -> Spread:
    return spread([run.rows[number - 1]["accuracy"] for run in row.runs])


def test_networks_that_start_alike_can_be_averaged(tmp_path: Path) -> None:
    study = Study("tiny", TINY, tmp_path, Runner(tmp_path / "work"), (1,))
    found = study.locals()
    assert set(found) == {"shared, E = 1", "independent, E = 1"}
    assert found["shared, E = 1"]["alone"] != found["independent, E = 1"]["alone"]
    mean = averaged([{"w": np.array([1.0])}, {"w": np.array([4.0])}], [2, 1])
    assert mean["w"].tolist() == [2.0]


def test_a_run_is_named_by_its_recipe_wherever_its_data_are(tmp_path: Path) -> None:
    def name(rate: float, folder: str) -> str:
        file = tmp_path / folder / "images.npz"
        recipe = Case("FedAvg", 1).recipe(TINY, {"rate": rate}, file, 1)
        return Runner(tmp_path).file(recipe).name

    assert name(0.1, "a") == name(0.1, "b")
    assert name(0.1, "a") != name(0.2, "a")
