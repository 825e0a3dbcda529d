"""Sweeps from Python: their result, their files, and code of a notebook."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

import edgefed
from edgefed.config.loading.write import to_toml
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import PluginError, RecipeError, StorageError, UsageError
from edgefed.simulator.sweep.trials import TrialStep
from tests.api.small import npz, recipe
from tests.base.test_progress_bar import Terminal
from tests.cli.commands import edgefed as command
from tests.notebook import Notebook

GRID = {"seeds": [1, 2], "grid": {"training.learning_rate": [0.05, 0.5]}, "target": 0.1}


def steps(source: Any, out: Path, **more: Any) -> tuple[edgefed.SweepResult, list[str]]:
    """Run a sweep, and return the result and how each of its runs ended."""
    seen: list[TrialStep] = []
    result = edgefed.sweep(source, out=out, on_step=seen.append, **more)
    return result, [step.state for step in seen if step.state not in ("begun", "round")]


def test_a_mapping_and_a_file_are_the_sweep_of_the_command(tmp_path: Path) -> None:
    tables = recipe(data=npz(tmp_path), name="small")
    (tmp_path / "recipe.toml").write_text(to_toml(Recipe.model_validate(tables)))
    text = 'recipe = "recipe.toml"\nseeds = [1, 2]\ntarget = 0.1\n'
    file = tmp_path / "sweep.toml"
    file.write_text(text + "[grid]\ntraining.learning_rate = [0.05, 0.5]\n")
    told = command("--quiet", "sim", "sweep", str(file), "--json", state=tmp_path / "state").json
    result = edgefed.sweep(file)
    assert result.folder == tmp_path / "sweep-results"
    assert result.to_json() == told == json.loads((result.folder / "table.json").read_text())
    of_mapping, ends = steps({**GRID, "recipe": Recipe(**tables)}, tmp_path / "sweep-results")
    assert (of_mapping, ends) == (result, ["known"] * 4)
    assert [row.case for row in result.rows] == ["learning_rate=0.05", "learning_rate=0.5"]
    row, column = result["learning_rate=0.5"], told["cases"][1]["accuracy"]
    assert (row.runs, row.failed, row.settings) == (2, 0, {"training.learning_rate": 0.5})
    accuracy = row.values["accuracy"]
    assert (accuracy.mean, accuracy.deviation, accuracy.count) == (
        column["mean"], column["deviation"], 2,
    )  # fmt: skip


def test_seeds_take_the_place_of_the_sweeps_and_a_relative_recipe_starts_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text(to_toml(Recipe.model_validate(recipe(data=npz(tmp_path)))))
    monkeypatch.setenv("EDGEFED_TRAINING__LEARNING_RATE", "3")
    result, ends = steps({"recipe": "recipe.toml"}, tmp_path / "out", seeds=[7])
    assert (result.to_json()["seeds"], ends) == ([7], ["done"])
    (row,) = result.rows
    same = edgefed.simulate("recipe.toml", seed=7)
    assert row.values["accuracy"].mean == same.scores["accuracy"]


def test_failed_runs_are_in_the_result_and_are_run_again(tmp_path: Path) -> None:
    source = {
        "recipe": recipe(data=npz(tmp_path)),
        "seeds": [1],
        "cases": [{"algorithm.name": "tests.api.own_classes:Failing"}, {"name": "plain"}],
    }
    result, ends = steps(source, tmp_path / "out")
    (failure,) = result.failures
    assert (failure.case, failure.seed) == ("algorithm=tests.api.own_classes:Failing", 1)
    assert "failed in merge" in failure.reason
    assert [row.failed for row in result.rows] == [1, 0]
    assert ends == ["failed", "done"]
    assert failure.file.parent.parent == tmp_path / "out" / "runs"
    text = failure.file.read_text()
    assert text.startswith(f"{failure.reason}\n\nTraceback ")
    assert 'raise KeyError("steps")\nKeyError' in text
    assert steps(source, tmp_path / "out")[1] == ["failed", "known"]


def test_failures_and_missing_metrics_are_warnings_and_the_table_is_printed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = {
        "recipe": recipe(data=npz(tmp_path)),
        "seeds": [1, 2],
        "cases": [{"algorithm.name": "tests.api.own_classes:Failing"}, {"name": "plain"}],
        "report": ["accuracy", "zzz"],
    }
    with pytest.warns(
        UserWarning, match="^report: no finished run has 'zzz'; the runs have: "
    ) as one:
        result = edgefed.sweep(source, out=tmp_path / "out", figures=["svg"])  # type: ignore[list-item]
    assert len(one) == 1
    told = (one for one in caplog.records if one.name == "edgefed")
    warnings = [one.getMessage() for one in told if one.levelno >= logging.WARNING]
    failed = [f"seed {one.seed}: failed: {one.reason}" for one in result.failures]
    assert [text.partition("Failing, ")[2] or text for text in warnings] == [
        failed[0], failed[1],
    ]  # fmt: skip
    head, first, second, end = str(result).splitlines()
    assert head.split() == ["CASE", "RUNS", "ACCURACY", "ZZZ"]
    assert first == f"{result.rows[0].case}  0, 2 failed"
    assert second.split()[:2] == ["plain", "2"]
    assert second.index("2") == head.index("RUNS")
    assert end == f"failed runs: 2; folder: {result.folder}"


def test_a_terminal_has_a_bar_of_the_runs_if_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {**GRID, "recipe": recipe(data=npz(tmp_path))}
    for progress in (None, True):
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", terminal)
            patch.setenv("TERM", "xterm-256color")
            patch.setenv("COLUMNS", "120")
            ends = steps(source, tmp_path / "out", progress=progress)[1]
        assert len(ends) == 4
        shown = " 2/4 " in terminal.getvalue()
        at_end = "run 4 of 4: learning_rate=0.5, seed 2" in terminal.getvalue()
        assert (shown, at_end, terminal.line) == (progress is True, progress is True, "")


def test_runs_of_another_release_are_repeated_only_if_asked(tmp_path: Path) -> None:
    source, out = {"recipe": recipe(data=npz(tmp_path)), "seeds": [1]}, tmp_path / "out"
    steps(source, out)
    (file,) = (out / "results").iterdir()
    stored = json.loads(file.read_text())
    stored["versions"]["edgefed"] = "0.0.9"
    file.write_text(json.dumps(stored))
    assert steps(source, out)[1] == ["known"]
    assert steps(source, out, recompute=True)[1] == ["done"]


def test_ctrl_c_leaves_a_folder_that_the_same_call_resumes(tmp_path: Path) -> None:
    source = {**GRID, "recipe": recipe(data=npz(tmp_path))}

    def interrupt(step: TrialStep) -> None:
        if (step.number, step.state) == (3, "round"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        edgefed.sweep(source, out=tmp_path / "out", on_step=interrupt)
    assert steps(source, tmp_path / "out")[1] == ["known", "known", "done", "done"]


@pytest.mark.parametrize(
    ("source", "more", "error"),
    [
        ({**GRID, "recipe": {}}, {}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "seeds": [-1]}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "jobs": 0}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "jobs": "2"}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "on": "rai"}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "figures": ["gif"]}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "figures": "pdf"}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "figures": ["pdf"]}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "figures": 3}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "seeds": 3}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "seeds": "3"}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "seeds": None}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "trackers": [object()]}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "trackers": object()}, UsageError),
        ({**GRID, "recipe": {}}, {"out": "out", "trackers": None}, UsageError),
        ({**GRID, "recipe": {}, "seeds": 3}, {"out": "out"}, RecipeError),
        ({**GRID, "recipe": {}, "report": "mae"}, {"out": "out"}, RecipeError),
        ({"recipe": {}, "grid": {"rounds.count": 3}}, {"out": "out"}, RecipeError),
        ({"recipe": {}, "grid": ["rounds.count"]}, {"out": "out"}, RecipeError),
        ({"recipe": {}, "cases": {"name": "one"}}, {"out": "out"}, RecipeError),
        ({"recipe": {}, "cases": ["one"]}, {"out": "out"}, RecipeError),
        ({"recipe": {}, "choose": {"within": "algorithm.name"}}, {"out": "out"}, RecipeError),
        ({"grid": {}, "sedes": [1]}, {"out": "out"}, RecipeError),
        ({"recipe": {"rounds": {"cuont": 1}}}, {"out": "out"}, RecipeError),
        ({"recipe": 5}, {"out": "out"}, RecipeError),
    ],
)
def test_a_sweep_that_cannot_be_used_is_refused(
    source: Any, more: Any, error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(error) as caught:
        edgefed.sweep(source, **more)
    assert caught.value.message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["figures", "seeds"])
def test_a_text_is_no_list(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"^{name} is a list, not 'pdf'.$") as caught:
        edgefed.sweep({**GRID, "recipe": {}}, out=tmp_path, **{name: "pdf"})  # type: ignore[arg-type]
    assert caught.value.hint.startswith(f"such as {name}=[")


CELL = """
from dataclasses import replace
from edgefed.extension import FedAvg
FACTOR = 0.5


class Mine(FedAvg):
    def merge(self, state, exchange, answers):
        merged = super().merge(state, exchange, answers)
        before, after = state.groups["weights"], merged.groups["weights"]
        weights = {n: (b + FACTOR * (after[n] - b)).astype(b.dtype) for n, b in before.items()}
        return replace(merged, groups={**merged.groups, "weights": weights})
"""


def test_changed_code_of_a_notebook_runs_again_and_other_cells_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    notebook, out = Notebook(monkeypatch), tmp_path / "out"
    notebook.cell(CELL)
    source = {
        "recipe": recipe(data=npz(tmp_path)),
        "seeds": [1],
        "grid": {"algorithm.name": ["__main__:Mine", "fedavg"]},
    }
    first, ends = steps(source, out)
    assert ends == ["done", "done"]
    notebook.cell("def unrelated():\n    return 1\n")
    notebook.cell(CELL)
    assert steps(source, out)[1] == ["known", "known"]
    notebook.cell("FACTOR = 0.25\n")
    changed, ends = steps(source, out)
    assert ends == ["done", "known"]
    assert changed.rows[0].values["loss"] != first.rows[0].values["loss"]
    assert changed.rows[1].values == first.rows[1].values
    with pytest.raises(PluginError) as refused:
        edgefed.sweep(source, out=out, user_models=False)
    assert refused.value.code == "code.refused"
    with caplog.at_level(logging.INFO, "edgefed"):
        edgefed.sweep(source, out=out)
    assert "run 1 of 2: algorithm=__main__:Mine, seed 1: known accuracy" in caplog.text
    notebook.cell("FACTOR = iter([1])\n")
    with pytest.raises(StorageError, match="FACTOR of type list_iterator"):
        edgefed.sweep(source, out=out)


READER = """
import numpy as np
from edgefed.extension import Dataset, Samples
x, y = np.random.default_rng(0).random((30, 4), np.float32), np.arange(30) % 3


def read(options, folder):
    return Dataset(Samples(x[:20], y[:20]), Samples(x[20:], y[20:]), 3, x.shape[1:])
"""


def test_arrays_of_a_notebook_are_the_data_of_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook, out = Notebook(monkeypatch), tmp_path / "out"
    notebook.cell(READER)
    source = {"recipe": recipe(data={"name": "__main__:read"}), "seeds": [1]}
    result, ends = steps(source, out)
    assert (result.rows[0].runs, ends) == (1, ["done"])
    assert steps(source, out)[1] == ["known"]
    notebook.cell("x = x + 1\n")
    assert steps(source, out)[1] == ["done"]
