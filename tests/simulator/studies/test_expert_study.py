"""The study of mixtures of experts, on a few of scikit-learn's digits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.expert_study import __main__ as expert_study
from benchmarks.expert_study.__main__ import (
    METHODS,
    SETUPS,
    Clusters,
    Setup,
    clusters,
    clusters_rows,
    figures,
    study,
    widened,
)
from benchmarks.expert_study.samples import dealt, halves, read
from benchmarks.studies.runs import Runner

pytest.importorskip("sklearn", reason="the digits are not installed")

TINY = Setup(
    devices=4,
    new=2,
    samples=16,
    recipe={
        "model": {"name": "cnn", "width": 2, "hidden": 4},
        "rounds": {"count": 2, "cohort": 3},
        "training": {"batch_size": 6},
    },
)
COMPARED = ["FedAvg", "biased FedAvg", "IFCA, 4 models", "fedmoe, K = 4, pruned"]


@pytest.fixture
def two_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set-up with a grid of two settings, and scores of the last test alone."""
    grid = {
        f"local {rate}": {
            "algorithm": {"server_learning_rate": 0.01},
            "training": {"learning_rate": rate},
        }
        for rate in (0.05, 0.1)
    }
    monkeypatch.setitem(SETUPS, "tiny", TINY)
    monkeypatch.setattr(expert_study, "choices", lambda method: grid)
    monkeypatch.setattr(expert_study, "LAST", 1)


def test_no_sample_is_in_two_parts(tmp_path: Path) -> None:
    arrays = read(tmp_path)
    parts = halves(arrays)
    known, new = dealt(parts["test"], (4, 2), 16, 1.0, seed=1)
    other, _ = dealt(parts["tune"], (4, 2), 16, 1.0, seed=101)
    images = [each["x_train"].reshape(-1, 64) for each in (known, new, other)]
    assert [len(each) for each in images] == [64, 32, 64]
    everything = {image.tobytes() for image in arrays["inputs"]}
    assert len(everything) == len(arrays["inputs"]), "no two digits are the same image"
    assert len({image.tobytes() for each in images for image in each}) == 160
    assert np.bincount(known["groups_train"]).tolist() == [16] * 4


def test_labels_are_strongly_skewed(tmp_path: Path) -> None:
    known, _ = dealt(halves(read(tmp_path))["test"], (16, 4), 40, 1.0, seed=1)
    held = [
        np.bincount(known["y_train"][known["groups_train"] == each], minlength=10).max() / 40
        for each in range(16)
    ]
    assert np.mean(held) > 0.5, "on the mean device, more than half of the samples have one label"


def test_a_study_tests_known_and_new_devices(two_choices: None, tmp_path: Path) -> None:
    runner = Runner(tmp_path / "work")
    rows = {row.method: row for row in study("tiny", tmp_path, (1,), runner, COMPARED)}
    assert list(rows) == COMPARED
    found = {name: figures(row) for name, row in rows.items()}
    modes = {name: set(row["scores"]) for name, row in found.items()}
    assert modes["FedAvg"] == {"known", "start"} == modes["IFCA, 4 models"]
    assert modes["biased FedAvg"] == {"known", "start", "average"}
    assert modes["fedmoe, K = 4, pruned"] == {"known", "fitted", "fitted long", "marginal"}
    for row in rows.values():
        scores = found[row.method]["scores"]
        assert all(0 <= each <= 1 for own in scores.values() for each in own)
        assert all(len(own) == 1 for own in scores.values())
        if row.tuning:
            assert row.tuning[row.chosen] == max(row.tuning.values())
    assert rows["fedmoe, K = 4, pruned"].tuning == {}, "its settings are those of four experts"
    moved = {name: row["bytes_per_device_and_round"].mean for name, row in found.items()}
    assert moved["FedAvg"] < moved["IFCA, 4 models"]
    files = sorted((tmp_path / "work" / "runs").iterdir())
    assert len(files) == 4 * 2 + 4, "four methods are tuned, four are tested"
    assert all(json.loads(file.read_text())["ended"] == "finished" for file in files)


def test_a_wider_network_has_the_bytes_that_its_name_says() -> None:
    def weights(factor: float) -> int:
        model = widened(SETUPS["mnist"].recipe["model"], factor)
        (first, second), hidden = model["channels"], model["hidden"]
        convolutions = 25 * first + first + 25 * first * second + second
        total: int = convolutions + 16 * second * hidden + hidden + 10 * hidden + 10
        return total

    assert weights(METHODS["FedAvg, 4x bytes"].wider) / weights(1) == pytest.approx(4, 0.05)
    assert weights(METHODS["FedAvg, 10x bytes"].wider) / weights(1) == pytest.approx(10, 0.05)


def test_clusters_are_found_and_counted_by_seed_and_round(tmp_path: Path) -> None:
    recipe = {
        "model": {"hidden": [16]},
        "data": {"permutations": 2},
        "rounds": {"count": 2},
        "training": {"batch_size": 20},
    }
    setup = Setup(devices=6, samples=60, recipe=recipe)
    row = clusters(setup, 2, "updates", tmp_path, Runner(tmp_path / "work"), (1, 2))
    assert [len(values) for values in row.accuracy] == [2, 2]
    assert row.reachable == (1.0, 1.0)
    assert row.accuracy[0][-1] == row.accuracy[1][-1] == 1.0
    assert row.pure == (True, True)
    assert clusters_rows([row])[0]["pure"] == "2 of 2"


def test_a_clustering_is_found_from_the_round_on_from_which_it_stays() -> None:
    accuracy = ((0.5, 1.0, 0.9, 1.0), (1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 0.9))
    row = Clusters(4, "updates", accuracy, (1.0,) * 3, (True, True, False))
    assert row.rounds == [4, 1, None]
