"""The study of averaged data, on a few made images: it tunes on samples kept apart, then tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.averaged_data import __main__ as averaged_data
from benchmarks.averaged_data.__main__ import Setup, figures, prepare, study
from benchmarks.studies.runs import Runner


def made(path: Path) -> None:
    """Write 400 images of which each label has a bright row of its own, and their writers."""
    path.parent.mkdir()
    rng = np.random.default_rng(1)
    arrays: dict[str, Any] = {}
    for part, count in (("train", 300), ("test", 100)):
        labels = rng.integers(0, 10, count)
        images = rng.integers(0, 40, (count, 28, 28)).astype(np.uint8)
        images[np.arange(count), 2 * labels + 4] = 200
        arrays |= {f"x_{part}": images, f"y_{part}": labels}
    np.savez(path, **arrays)
    np.savez(path.with_name("made_writers.npz"), writer_train=np.arange(300) % 15)


def test_no_sample_is_in_two_parts(tmp_path: Path) -> None:
    made(tmp_path / "data/made.npz")
    setup = Setup("made.npz", 200)
    files = prepare(setup, tmp_path / "data", tmp_path / "work")
    tune, test = (np.load(files[name]) for name in ("tune", "test"))
    np.testing.assert_array_equal(tune["x_train"], test["x_train"])
    parts = [tune["x_train"], tune["x_test"], test["x_test"]]
    assert [len(part) for part in parts] == [200, 100, 100]
    assert len({image.tobytes() for part in parts for image in part}) == 400


def test_writers_keep_their_samples_together(tmp_path: Path) -> None:
    made(tmp_path / "data/made.npz")
    setup = Setup("made.npz", writers=5)
    files = prepare(setup, tmp_path / "data", tmp_path / "work")
    tune = np.load(files["tune"])
    assert len(np.unique(tune["groups_train"])) == 5
    assert len(tune["x_train"]) == 100


@pytest.mark.slow
def test_a_study_ends_in_a_row_for_each_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "data/made.npz")
    recipe = {
        "data": {"normalize": True, "partition": "classes", "classes_per_device": 2},
        "rounds": {"count": 2, "cohort": 2},
        "simulation": {"devices": 5},
    }
    setup = Setup("made.npz", 50, recipe=recipe)
    monkeypatch.setattr(averaged_data, "SETUPS", {"tiny": setup})
    monkeypatch.setattr(averaged_data, "RATES", (0.01, 0.05))
    monkeypatch.setattr(averaged_data, "TUNING_SEEDS", (101,))
    methods = {"fedavg": ({},), "fedmix": ({"mixup_ratio": 0.02}, {"mixup_ratio": 0.05})}
    monkeypatch.setattr(averaged_data, "METHODS", methods)
    rows = figures(study("tiny", tmp_path / "data", (1,), Runner(tmp_path / "work")))
    assert [row["method"] for row in rows] == ["fedavg", "fedmix"]
    for row in rows:
        assert row["failed"] == 0
        assert row["accuracy"].count == 1
        assert row["tuning"][row["settings"]] == max(row["tuning"].values())
    assert [len(row["tuning"]) for row in rows] == [2, 4], "two learning rates for every setting"
