"""``edgefed sim sweep``: formats of pictures, jobs, trackers of the settings, and its progress."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from edgefed.cli.laboratory import trial_progress
from edgefed.config.recipes.recipe import Recipe
from edgefed.simulator.sweep.plan import Plan, SweepCase
from edgefed.simulator.sweep.trials import TrialStep
from tests.cli.commands import edgefed
from tests.simulator.sweep.sweeps import GRID, write

pytest.importorskip("sklearn", reason="the digits are not installed")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--figures", "svg,gif"), 2, "there is no format 'gif'"),
        (("--figures", "pdf"), 2, "figures.missing"),
        (("--jobs", "0"), 2, "--jobs"),
        (("--jobs", "2", "--on", "ray"), 2, "one run at a time"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_first_run(
    words: tuple[str, ...], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    file = write(tmp_path / "sweep", GRID)
    told = edgefed("sim", "sweep", file, "--out", tmp_path / "out", *words, state=tmp_path)
    assert (told.code, told.out) == (code, "")
    assert said in told.err
    assert not (tmp_path / "out").exists()


def test_the_trackers_of_the_settings_are_notified_and_warn_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    file = write(tmp_path / "sweep", GRID)
    (tmp_path / "edgefed.toml").write_text('trackers = ["wandb"]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    words = ("sim", "sweep", file, "--seeds", "1", "--out", tmp_path / "out")
    told = edgefed("--config", tmp_path / "edgefed.toml", *words, state=tmp_path)
    assert told.code == 0
    assert told.err.count("! tracker wandb: The package wandb is not installed.") == 1
    assert "pip install 'edgefed[wandb]'" in told.err


def test_the_bar_counts_the_rounds_of_all_runs_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[Any, ...]] = []
    monkeypatch.setattr(trial_progress, "show_progress", lambda *words: shown.append(words))
    monkeypatch.setattr(trial_progress, "talk", lambda text: None)
    recipe = Recipe.model_validate({"rounds": {"count": 3}})
    first, second = Plan((SweepCase("one", {}, recipe),), (1, 2), ()).trials()
    progress = trial_progress.TrialProgress(quiet=False)
    for trial, number, state, done in [
        (first, 1, "begun", 0),
        (second, 2, "begun", 0),
        (second, 2, "round", 2),
        (first, 1, "failed", 0),
        (second, 2, "round", 3),
        (second, 2, "done", 3),
    ]:
        progress.take(TrialStep(trial, number, 2, state, done))
    # A run of three rounds has four parts: the last is its end.
    assert [(words[1], words[3]) for words in shown] == [
        (0.0, "one  seed 1  round 0/3"),
        (0.0, "one seed 1 0/3 · one seed 2 0/3"),
        (0.5, "one seed 1 0/3 · one seed 2 2/3"),
        (1.5, "one  seed 2  round 2/3"),
        (1.75, "one  seed 2  round 3/3"),
    ]
    assert progress.done == 1
