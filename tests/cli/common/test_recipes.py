"""All problems of a recipe are reported in one message before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import TINY, edgefed, recipe_file

BAD = [
    ("[trainin]\nepochs = 2\n", 2, "recipe.unknown_key", ":1: trainin", '"training"?'),
    ('[training]\nepochs = "two"\n', 2, "recipe.value", ":2: training.epochs", "whole number"),
    ("[training\n", 2, "recipe.syntax", ":1", "not valid TOML"),
    ('[algorithm]\nname = "fedprx"\n', 5, "algorithm.unknown", "'fedprx'", "'fedprox'?"),
    ('[model]\nname = "cn"\n', 2, "model.unknown", ":2: model.name", '"cnn"?'),
    ('[model]\nname = "cnn"\nwidht = 3\n', 2, "recipe.unknown_key", ":3: model.widht", '"width"?'),
    ('[model]\nname = "cnn"\nwidth = 0\n', 2, "recipe.value", ":3: model.width", "at least 1"),
    ('[data]\nname = "digit"\n', 2, "recipe.data", ":2: data.name", '"digits"?'),
    ('[data]\nname = "folder"\n', 2, "recipe.missing_key", ":1: data.path", "is missing"),
    ("[data]\nclasses_per_device = 11\n", 1, "data.partition", "11 labels", "at most 10"),
    ("[simulation]\ndevices = 99999\n", 1, "data.partition", "99999 devices", "fewer"),
    ('[data]\npartition = "odd"\n', 2, "recipe.data", ":2: data.partition", '"odd"'),
    ('[data]\nname = "none"\n', 1, "data.none", "'none'", "digits"),
    ('[data]\nname = "npz"\npath = "no.npz"\n', 2, "data.missing", "no.npz does not exist"),
]


@pytest.mark.parametrize(("text", "code", "name", "words"), [(t, c, n, w) for t, c, n, *w in BAD])
def test_a_bad_recipe_is_told_in_one_message(
    tmp_path: Path, text: str, code: int, name: str, words: list[str]
) -> None:
    path = recipe_file(tmp_path, text)
    told = edgefed("--quiet", "sim", "run", path, "--json", state=tmp_path)
    assert (told.code, told.out) == (code, "")
    assert told.err.count("\n") == 1
    for word in (name, *words):
        assert word.replace('"', '\\"') in told.err
    assert not list(tmp_path.glob("simulations/runs/*"))
    edgefed("--quiet", "sim", "run", path, state=tmp_path).failed(code, name, *words)


def test_a_folder_is_no_sweep_file(tmp_path: Path) -> None:
    for folder in (".", "/"):
        edgefed("sim", "sweep", folder, state=tmp_path).failed(2, "recipe.unreadable", "directory")


def test_every_problem_of_a_recipe_is_told_at_once(tmp_path: Path) -> None:
    path = recipe_file(tmp_path, "seed = -1\n[rounds]\ncount = 0\nquorum = 2\n")
    told = edgefed("sim", "run", path, state=tmp_path)
    told.failed(2, "recipe.value", ":1: seed", ":3: rounds.count", ":4: rounds.quorum")


WRONG_IN_EVERY_TABLE = """\
seed = -1
[algorithm]
name = "fedavgg"
[model]
name = "cn"
[data]
name = "folder"
alpha = -2
limt = 3
[rounds]
count = 0
"""


def test_wrong_names_and_missing_keys_are_told_beside_other_errors(tmp_path: Path) -> None:
    path = recipe_file(tmp_path, WRONG_IN_EVERY_TABLE)
    every = (
        ":1: seed: must be at least 0",
        ":3: algorithm.name: No algorithm 'fedavgg'; did you mean 'fedavg'?",
        ':5: model.name: there is no such model, got "cn"; did you mean "cnn"?',
        ":6: data.path: is missing",
        ":8: data.alpha: must be more than 0",
        ':9: data.limt: unknown key; did you mean "limit"?',
        ":11: rounds.count: must be at least 1",
    )
    told = edgefed("sim", "run", path, state=tmp_path)
    assert told.code == 2
    lines = [line.strip().removeprefix("edgefed: error: ") for line in told.err.splitlines()]
    assert len(lines) == len(every)
    for line, wanted in zip(lines, every, strict=True):
        assert line.startswith(f"{path}{wanted}")
    checked = edgefed("config", "check", path, state=tmp_path)
    assert checked.code == 8
    assert [line.removeprefix(str(path)) for line in checked.out.splitlines()] == [
        line.removeprefix(str(path)).removesuffix("  [recipe.value]") for line in lines
    ]


def test_a_data_set_without_its_path_passes_neither_check_nor_dry_run(tmp_path: Path) -> None:
    path = recipe_file(tmp_path, '[data]\nname = "folder"\n')
    told = edgefed("config", "check", path, state=tmp_path)
    assert (told.code, told.out) == (8, f"{path}:1: data.path: is missing\n")
    told = edgefed("run", "start", path, "--dry-run", state=tmp_path)
    told.failed(2, "recipe.missing_key", ":1: data.path: is missing")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set", "rounds"], "KEY=VALUE"),
        (["--set", "rounds.cont=3"], '"count"?'),
        (["--rounds", "0"], "--rounds: must be at least 1"),
        (["--devices", "0"], "--devices: must be at least 1"),
        (["--seed", "-1"], "--seed: must be at least 0"),
        (["--set", "mu=500", "--algorithm", "fedprox"], "--set mu: must be at most 100"),
    ],
)
def test_what_was_typed_is_named_as_it_was_typed(
    tmp_path: Path, words: list[str], told: str
) -> None:
    ended = edgefed("sim", "run", *words, state=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err


def test_a_missing_recipe_and_a_folder_are_told(tmp_path: Path) -> None:
    edgefed("sim", "run", tmp_path / "none.toml").failed(2, "recipe.missing", "none.toml")
    edgefed("sim", "run", tmp_path).failed(2, "recipe.unreadable", str(tmp_path))
    edgefed("demo", "--recipe", tmp_path / "none.toml").failed(2, "recipe.missing", "none.toml")


@pytest.mark.parametrize("command", [["demo"], ["run", "start"]])
def test_dry_run_prints_a_recipe_that_loads_back_equal(tmp_path: Path, command: list[str]) -> None:
    option = "--recipe" if command == ["demo"] else ""
    typed = ["--algorithm", "fedprox", "--set", "mu=0.5", "--seed", "7", "--dry-run"]
    first = edgefed(*command, *typed, state=tmp_path)
    assert (first.code, first.err) == (0, "")
    path = recipe_file(tmp_path, first.out)
    words = [option, str(path)] if option else [str(path)]
    again = edgefed(*command, *words, "--dry-run", state=tmp_path)
    assert again.out == first.out
    assert "mu = 0.5" in again.out
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_demo_is_not_named_after_an_algorithm_that_it_does_not_run(tmp_path: Path) -> None:
    nameless = recipe_file(tmp_path, "[rounds]\ncount = 2\n")
    for words in (["demo"], ["demo", "--recipe", str(nameless)], ["run", "start"]):
        told = edgefed(*words, "--algorithm", "fedprox", "--dry-run", state=tmp_path)
        name = next(line for line in told.out.splitlines() if line.startswith("name = "))
        assert name in ('name = "digits-demo"', 'name = "digits-fedprox"')


def test_a_demo_refuses_what_only_a_simulation_can_do_before_it_starts_anything(
    tmp_path: Path,
) -> None:
    words = ("demo", "--headless", "--algorithm", "globalmix")
    edgefed(*words, state=tmp_path).failed(2, "run.simulation_only", "raw data", "sim run")
    edgefed("demo", "--headless", "--algorithm", "fedmix", "--set", "group_size=1").failed(
        2, "run.simulation_only", "group_size = 1"
    )
    assert list(tmp_path.iterdir()) == []
    assert edgefed(*words, "--dry-run", state=tmp_path).code == 0


def test_a_simulation_prints_its_result(tmp_path: Path) -> None:
    path = recipe_file(tmp_path, TINY)
    told = edgefed("--quiet", "sim", "run", path, "--seed", "3", "--json", state=tmp_path)
    assert (told.code, told.err) == (0, "")
    result = told.json
    assert (result["algorithm"], result["rounds"], result["devices"]) == ("fedavg", 3, 2)
    assert (result["status"], result["seed"], result["name"]) == ("finished", 3, "tiny")
    assert 0 <= result["accuracy"] <= 1
    assert len(result["weights_digest"]) == 64
    assert min(result["bytes_up"], result["bytes_down"], result["seconds"]) > 0
    assert isinstance(result["run"], str)
    assert Path(result["model"]).is_file()
    shown = edgefed("--quiet", "sim", "run", path, "--seed", "3", state=tmp_path)
    assert result["weights_digest"] in shown.out
