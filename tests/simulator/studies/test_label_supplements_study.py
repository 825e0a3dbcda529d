"""The study of label supplements, on a few of scikit-learn's digits."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.label_supplements.__main__ import (
    METHODS,
    SETUPS,
    Setup,
    compared,
    order,
    prepare,
    scores,
    study,
)
from benchmarks.studies.runs import Run, Runner, best_of, difference
from benchmarks.studies.trials import Row

pytest.importorskip("sklearn", reason="the digits are not installed")

TINY = Setup(
    labels=1,
    trainings=("Adam", "SGD, rate 0.1"),
    methods=("none", "mixes, global", "FedRS"),
    train=100,
    apart=40,
    tested=40,
    recipe={"rounds": {"count": 1}},
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """A set-up of one round; its name."""
    monkeypatch.setitem(SETUPS, "tiny", TINY)
    two = replace(METHODS["FedRS"], grid=METHODS["FedRS"].grid[:2])
    monkeypatch.setitem(METHODS, "FedRS", two)
    return "tiny"


def test_no_sample_is_in_two_parts(tmp_path: Path) -> None:
    network, files = prepare(TINY, tmp_path, tmp_path / "work")
    tune, test = (np.load(files[name]) for name in ("tune", "test"))
    assert network == "cnn", "a network for images of 8 by 8 pixels"
    np.testing.assert_array_equal(tune["x_train"], test["x_train"])
    parts = [tune["x_train"], tune["x_test"], test["x_test"]]
    assert [len(part) for part in parts] == [100, 40, 40]
    assert len({image.tobytes() for part in parts for image in part}) == 180


@pytest.mark.slow
def test_a_study_ends_in_a_row_for_each_method_and_goes_on_after_a_kill(
    tiny: str, tmp_path: Path
) -> None:
    rows = study(tiny, tmp_path, (1, 2), Runner(tmp_path))
    assert [row.method for row in rows] == list(TINY.methods)
    for row in rows:
        assert all(0 <= score <= 1 for score in scores(row))
        assert len(scores(row)) == 2
        assert row.tuning[row.chosen] == max(row.tuning.values())
    assert len(rows[2].tuning) == 2 * len(METHODS["FedRS"].grid), "with each optimiser"
    lines = compared(rows)
    assert lines[0]["accuracy"].deviation is not None
    mean = np.subtract(scores(rows[1]), scores(rows[0])).mean()
    assert lines[1]["against none"] == pytest.approx(mean)

    files = sorted((tmp_path / "runs").iterdir())
    assert len(files) == 2 * (2 + len(METHODS["FedRS"].grid)) + 2 * 3
    words = {file: json.loads(file.read_text())["words"] for file in files}
    lost = [file for file in files if "none, test: " in words[file]]
    lost = lost[:1]
    stamps = {file: file.stat().st_mtime_ns for file in files if file not in lost}
    for file in lost:
        file.unlink()
    again = study(tiny, tmp_path, (1, 2), Runner(tmp_path))
    assert [(scores(row), row.tuning) for row in again] == [
        (scores(row), row.tuning) for row in rows
    ]
    assert {file: json.loads(file.read_text())["words"] for file in files} == words
    assert {file: file.stat().st_mtime_ns for file in stamps} == stamps, "these are not repeated"


def ended_in(setup: str, method: str, accuracies: Sequence[float]) -> Row:
    """A row of runs that ended in these accuracies."""
    runs = [Run("", seed, rows=[{"accuracy": each}]) for seed, each in enumerate(accuracies)]
    return Row(setup, method, "", {}, runs)


def test_a_choice_of_which_a_run_failed_is_not_made() -> None:
    assert best_of({"a": 0.2, "b": math.nan, "c": 0.3}) == "c"
    assert best_of({"a": math.nan, "b": 0.2}) == "b"


def test_the_means_are_compared_in_the_published_order() -> None:
    found = {"mixes": (0.8, 0.6), "none": (0.1, 0.3), "noise": (0.1, 0.2), "FedRS": (0.9, 0.9)}
    rows = [ended_in("tiny", method, each) for method, each in found.items()]
    assert order(rows) == "none 0.200 >= noise 0.150 < mixes 0.700"


def test_a_difference_is_by_seed_with_its_confidence_interval() -> None:
    found = difference([0.5, 0.7, 0.9], [0.4, 0.5, 0.6])
    assert found.mean == pytest.approx(0.2)
    assert found.deviation == pytest.approx(0.1)
    rows = [ended_in("one-sgd", "none", (0.4, 0.5, 0.6))]
    rows += [ended_in("one-sgd", "noise", (0.5, 0.7, 0.9))]
    row = compared(rows)[1]
    assert row["against none"] == pytest.approx(0.2)
    assert row["within"] == pytest.approx(4.303 * 0.1 / math.sqrt(3), rel=1e-3)


def test_a_score_is_the_mean_of_the_last_tests_of_a_finished_run() -> None:
    rows = [{"accuracy": each} for each in (0.1, None, 0.5, 0.7)]
    assert Run("", 1, rows=rows).score(last=2) == pytest.approx(0.6)
    assert math.isnan(Run("", 1, "it diverged", rows=rows).score())
    assert math.isnan(Run("", 1).score())
