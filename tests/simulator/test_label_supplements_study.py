"""The study of label supplements, on a few of scikit-learn's digits."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.label_study.methods import METHODS, SETUPS, Setup
from benchmarks.label_study.runs import Runner
from benchmarks.label_supplements import (
    Row,
    best_of,
    difference,
    order,
    prepare,
    study,
    table,
)

pytest.importorskip("sklearn", reason="the digits are not installed")

TINY = Setup(
    labels=1,
    trainings=("Adam", "SGD, rate 0.1"),
    methods=("none", "half, white", "mixes, global", "FedRS"),
    tuning=(101,),
    rounds=2,
    train=300,
    apart=100,
    tested=100,
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """A set-up of two rounds; its name."""
    monkeypatch.setitem(SETUPS, "tiny", TINY)
    return "tiny"


def test_no_sample_is_in_two_parts(tmp_path: Path) -> None:
    network, files = prepare(TINY, tmp_path, tmp_path / "work")
    tune, test = (np.load(files[name]) for name in ("tune", "test"))
    assert network == "cnn", "a network for images of 8 by 8 pixels"
    np.testing.assert_array_equal(tune["x_train"], test["x_train"])
    parts = [tune["x_train"], tune["x_test"], test["x_test"]]
    assert [len(part) for part in parts] == [300, 100, 100]
    assert len({image.tobytes() for part in parts for image in part}) == 500


@pytest.mark.slow
def test_a_study_ends_in_a_row_for_each_method_and_goes_on_after_a_kill(
    tiny: str, tmp_path: Path
) -> None:
    runner = Runner(tmp_path, 2, tell=False)
    rows = study(tiny, tmp_path, tmp_path, (1, 2), runner)
    assert [row.method for row in rows] == list(TINY.methods)
    for row in rows:
        assert all(0 <= score <= 1 for score in row.scores)
        assert len(row.scores) == 2
        assert row.tuning[row.chosen] == max(row.tuning.values())
    assert len(rows[3].tuning) == 2 * len(METHODS["FedRS"].grid), "with each optimiser"
    assert "±" in table(rows)[1][4]

    file = tmp_path / "runs.jsonl"
    lines = file.read_text().splitlines()
    supplied = [line for each in lines if "none" not in (line := json.loads(each))["case"]]
    for line in (each for each in supplied if "FedRS" not in each["case"]):
        (note,) = (each for each in line["notes"] if "closed" in each)
        received, wanted = note.split(" closed: ")[1].split(" mixes")[0].split(" of ")
        assert received == wanted != "0"
    assert len(lines) == 2 * (3 + len(METHODS["FedRS"].grid)) + 2 * 4

    file.write_text("\n".join(lines[:-2]) + "\n" + lines[-1][:40])
    again = study(tiny, tmp_path, tmp_path, (1, 2), runner)
    assert [row.method for row in again] == [row.method for row in rows]
    assert file.read_text().splitlines()[: len(lines) - 2] == lines[:-2], "these are not repeated"
    assert len(file.read_text().splitlines()) == len(lines)


def test_a_choice_of_which_a_run_failed_is_not_made() -> None:
    assert best_of({"a": 0.2, "b": math.nan, "c": 0.3}) == "c"


def test_the_means_are_compared_in_the_published_order() -> None:
    scores = {"mixes": (0.8, 0.6), "none": (0.1, 0.3), "noise": (0.1, 0.2), "FedRS": (0.9, 0.9)}
    rows = [Row("tiny", method, "", each, {}) for method, each in scores.items()]
    assert order(rows) == "none 0.200 >= noise 0.150 < mixes 0.700"


def test_a_difference_is_by_seed() -> None:
    mean, half = difference([0.5, 0.7, 0.9], [0.4, 0.5, 0.6])
    assert mean == pytest.approx(0.2)
    assert half == pytest.approx(4.303 * 0.1 / math.sqrt(3))
