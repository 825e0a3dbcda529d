"""The study of mixtures of experts, on a few of scikit-learn's digits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.expert_study import __main__ as expert_study
from benchmarks.expert_study.__main__ import Clusters, Study, clusters, clusters_table
from benchmarks.expert_study.setups import (
    METHODS,
    Choice,
    Permuted,
    Setup,
    dealt,
    halves,
    read,
    widened,
)
from benchmarks.studies.runs import Runner

pytest.importorskip("sklearn", reason="the digits are not installed")

TINY = Setup(
    devices=4,
    new=2,
    samples=16,
    cohort=3,
    rounds=2,
    batch_size=6,
    model={"name": "cnn", "width": 2, "hidden": 4},
)
COMPARED = ["FedAvg", "biased FedAvg", "IFCA, 4 models", "fedmoe, K = 4, pruned"]


@pytest.fixture
def two_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid of two settings, and scores of the last test alone."""
    grid = {choice.words: choice for choice in (Choice(0.01, 0.05), Choice(0.01, 0.1))}
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
    study = Study(TINY, tmp_path, runner, (1,))
    rows = {row.method: row for row in study.rows(COMPARED)}
    assert list(rows) == COMPARED
    modes = {name: set(row.scores) for name, row in rows.items()}
    assert modes["FedAvg"] == {"known", "start"} == modes["IFCA, 4 models"]
    assert modes["biased FedAvg"] == {"known", "start", "average"}
    assert modes["fedmoe, K = 4, pruned"] == {"known", "fitted", "fitted long", "marginal"}
    for row in rows.values():
        assert all(0 <= each <= 1 for found in row.scores.values() for each in found)
        assert all(len(found) == 1 for found in row.scores.values())
        if row.tuning:
            assert row.tuning[row.chosen] == max(row.tuning.values())
    assert rows["fedmoe, K = 4, pruned"].tuning == {}, "its settings are those of four experts"
    assert rows["FedAvg"].traffic[0] < rows["IFCA, 4 models"].traffic[0]
    files = sorted((tmp_path / "work" / "runs").iterdir())
    assert len(files) == 4 * 2 + 4, "four methods are tuned, four are tested"
    assert all(json.loads(file.read_text())["ended"] == "finished" for file in files)


def test_a_wider_network_has_the_bytes_that_its_name_says() -> None:
    def weights(factor: float) -> int:
        model = widened(Setup().model, factor)
        (first, second), hidden = model["channels"], model["hidden"]
        convolutions = 25 * first + first + 25 * first * second + second
        total: int = convolutions + 16 * second * hidden + hidden + 10 * hidden + 10
        return total

    assert weights(METHODS["FedAvg, 4x bytes"].wider) / weights(1) == pytest.approx(4, 0.05)
    assert weights(METHODS["FedAvg, 10x bytes"].wider) / weights(1) == pytest.approx(10, 0.05)


def test_clusters_are_found_and_counted_by_seed_and_round(tmp_path: Path) -> None:
    setup = Permuted(devices=6, samples=60, permutations=2, rounds=2, batch_size=20, hidden=16)
    row = clusters(setup, 2, "updates", tmp_path, Runner(tmp_path / "work"), (1, 2))
    assert [len(values) for values in row.accuracy] == [2, 2]
    assert row.reachable == (1.0, 1.0)
    assert row.accuracy[0][-1] == row.accuracy[1][-1] == 1.0
    assert row.pure == (True, True)
    assert clusters_table([row])[1][-1] == "2 of 2"


def test_a_clustering_is_found_from_the_round_on_from_which_it_stays() -> None:
    accuracy = ((0.5, 1.0, 0.9, 1.0), (1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 0.9))
    row = Clusters(4, "updates", accuracy, (1.0,) * 3, (True, True, False))
    assert row.rounds == [4, 1, None]
