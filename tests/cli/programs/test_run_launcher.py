"""Drafts of new runs: their values, their problems, and the command line that is equal to each."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgefed.api.recipe_source import checked
from edgefed.cli.common.context import Globals
from edgefed.cli.programs.run_launcher import RunLauncher, StartOptions
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.load import load_recipe, parse_sets
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import EdgeFedError, RecipeError
from edgefed.tui.forms.recipe_fields import recipe_fields
from edgefed.tui.state.launching import Draft

FILE = """
[algorithm]
name = "fedprox"
mu = 0.5
[model]
train = ["fc*"]
"""

PAST = Recipe.model_validate(
    {
        "name": "2024",
        "algorithm": {"name": "fedprox", "mu": 0.25},
        "data": {"name": "digits", "classes": ("0", "1")},
        "model": {"train": ("fc*",)},
        "training": {"epochs": 3, "crop": 2},
    }
)


class Coordinator:
    """Knows one run, and writes down what it is told to start."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.recipe = PAST.model_dump(mode="json")

    def ask(self, action: str, /, **arguments: Any) -> Any:
        row = {"run": "r-1", "name": "2024", "algorithm": "fedprox", "status": "finished"}
        if action == "run.list":
            return [{**row, "created": "2026-03-04T14:02:31.000Z", "rounds": 3}]
        assert (action, arguments) == ("run.show", {"run": "r-1"})
        return {**row, "recipe": self.recipe}

    def order(self, action: str, /, **arguments: Any) -> Any:
        assert action == "run.start"
        self.started.append(arguments["recipe"])
        return {"run": "r-2"}


@pytest.fixture
def launcher(tmp_path: Path) -> RunLauncher:
    (tmp_path / "recipe.toml").write_text(FILE)
    return RunLauncher(Coordinator(), Surroundings({"HOME": str(tmp_path)}, tmp_path))


def by_command(draft: Draft, sets: Mapping[str, str], around: Surroundings) -> dict[str, Any]:
    """The recipe that the draft's command line makes."""
    words = shlex.split(draft.command(sets))
    assert words[:3] == ["edgefed", "run", "start"]
    rest = words[3:]
    file = Path(rest.pop(0)) if rest and rest[0] != "--set" else None
    assert set(rest[::2]) <= {"--set"}
    return checked(load_recipe(file, around, sets=parse_sets(rest[1::2]))).model_dump(mode="json")


def drafts(launcher: RunLauncher) -> list[Draft]:
    from_file = launcher.from_file(launcher.folder / "recipe.toml")
    return [launcher.from_file(None), from_file, launcher.from_run("r-1")]


CHANGES = st.dictionaries(
    st.sampled_from(
        ["name", "seed", "rounds.count", "algorithm.name", "algorithm.mu", "training.epochs",
         "model.train", "data.classes", "evaluation.best_metric", "wire.uplink"]
    ),
    st.sampled_from(
        ["1", "0.5", "fedavg", "fedprox", "true", '["0", "1"]', "int8", "loss", "2024", "a b", "",
         "'x'", "all", "last:2", "[", "name=3"]
    ),
    max_size=4,
)  # fmt: skip


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sets=CHANGES, which=st.integers(0, 2))
def test_the_command_line_makes_the_recipe_that_is_shown(
    launcher: RunLauncher, sets: dict[str, str], which: int
) -> None:
    draft = drafts(launcher)[which]
    found = draft.check(sets)
    assert recipe_fields(draft.schema, found.values)
    if found.problems:
        with pytest.raises(EdgeFedError):
            by_command(draft, sets, launcher.around)
    else:
        assert by_command(draft, sets, launcher.around) == found.values
        draft.start(sets)
        coordinator = launcher.coordinator
        assert isinstance(coordinator, Coordinator)
        assert coordinator.started[-1] == found.values


def test_a_past_run_is_started_as_it_was(launcher: RunLauncher) -> None:
    assert launcher.from_run("r-1").check({}).values == PAST.model_dump(mode="json")
    (row,) = launcher.past_runs()
    assert (row.run, row.algorithm, row.status) == ("r-1", "fedprox", "finished")


def test_a_past_run_keeps_a_name_that_is_the_default_one(launcher: RunLauncher) -> None:
    plain = Recipe.model_validate({"algorithm": {"name": "fedprox"}}).model_dump(mode="json")
    coordinator = launcher.coordinator
    assert isinstance(coordinator, Coordinator)
    coordinator.recipe = plain
    draft = launcher.from_run("r-1")
    assert by_command(draft, {}, launcher.around)["name"] == plain["name"] == "digits-fedavg"


def test_values_of_settings_files_count_as_on_the_command_line(launcher: RunLauncher) -> None:
    (launcher.folder / "edgefed.toml").write_text("[recipe.training]\nepochs = 9\nmomentum = 0.5\n")
    for draft in drafts(launcher):
        assert by_command(draft, {}, launcher.around) == draft.check({}).values
    assert launcher.from_file(None).check({}).values["training"]["epochs"] == 9
    assert launcher.from_run("r-1").check({}).values["training"]["epochs"] == 3


def test_each_problem_is_of_its_key(launcher: RunLauncher) -> None:
    draft = launcher.from_file(Path("recipe.toml"))
    sets = {"algorithm.mu": "1e9", "training.epochs": "three", "rounds.counts": "3"}
    found = draft.check(sets)
    assert {(each.key, each.text) for each in found.problems} == {
        ("algorithm.mu", "must be at most 100, got 1000000000.0"),
        ("training.epochs", 'must be a whole number, got "three"'),
        ("rounds.counts", 'unknown key; did you mean "count"?'),
    }
    assert found.values["rounds"]["counts"] == 3
    with pytest.raises(RecipeError):
        draft.start(sets)


def test_an_unknown_algorithm_is_a_problem_of_its_name(launcher: RunLauncher) -> None:
    (problem,) = launcher.from_file(None).check({"algorithm.name": "fedprx"}).problems
    assert problem.key == "algorithm.name"
    assert "fedprx" in problem.text


def test_a_file_that_is_no_toml_is_refused_at_once(launcher: RunLauncher) -> None:
    (launcher.folder / "bad.toml").write_text("name = ")
    for name in ("bad.toml", "absent.toml"):
        with pytest.raises(RecipeError, match=name):
            launcher.from_file(Path(name))


def test_a_file_with_a_wrong_value_can_be_mended(launcher: RunLauncher) -> None:
    (launcher.folder / "wrong.toml").write_text("[rounds]\ncount = 0\n")
    draft = launcher.from_file(Path("wrong.toml"))
    assert [each.key for each in draft.check({}).problems] == ["rounds.count"]
    assert draft.check({"rounds.count": "4"}).problems == ()


def test_the_options_of_the_dashboard_are_those_of_the_command(tmp_path: Path) -> None:
    start = StartOptions.of(Globals(fleet="lab", no_config=True, broker="mqtt://me:pw@127.0.0.1"))
    around = Surroundings({"HOME": str(tmp_path)}, tmp_path)
    draft = RunLauncher(Coordinator(), around, start.words).from_file(None)
    assert draft.command({}) == "edgefed --fleet lab --no-config run start"
    shown = Globals(json=True, quiet=True, verbose=True, no_color=True)
    assert StartOptions.of(shown).words == ()
    words = StartOptions.of(Globals(broker="mqtt://127.0.0.1:1", insecure=True)).words
    assert words == ("--broker", "mqtt://127.0.0.1:1", "--insecure")


def test_a_check_is_quick_enough_to_follow_typing(launcher: RunLauncher) -> None:
    draft = launcher.from_file(None)
    fields = recipe_fields(draft.schema, draft.check({}).values)
    slowest = 0.0
    for field in fields:
        for text in (*field.choices, f"{field.text}9"):
            began = [time.perf_counter()]
            for _ in range(3):
                draft.check({field.key: text})
                began.append(time.perf_counter())
            slowest = max(slowest, min(after - before for before, after in pairwise(began)))
    assert slowest < 0.05, "the form checks in the thread that draws"


@pytest.mark.parametrize(
    "key", ["model.name", "training.loss", "data.name", "algorithm.name", "evaluation.metrics"]
)
def test_a_check_runs_no_code_of_the_user(
    launcher: RunLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    (tmp_path / "slow_user_code.py").write_text("import time\ntime.sleep(3600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = "slow_user_code:made"
    launcher.from_file(None).check({key: f'["{text}"]' if key.endswith("metrics") else text})
    assert "slow_user_code" not in sys.modules


def test_a_check_reads_no_data_set(launcher: RunLauncher, tmp_path: Path) -> None:
    pipe = tmp_path / "data.npz"
    os.mkfifo(pipe)  # who opens it waits for a writer that never comes
    (tmp_path / "recipe.toml").write_text(f'[data]\nname = "npz"\npath = "{pipe}"\n')
    draft = launcher.from_file(tmp_path / "recipe.toml")
    assert draft.check({"rounds.count": "9"}).values["rounds"]["count"] == 9
