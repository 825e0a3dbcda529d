"""Every form of a recipe ends in the weights that the command line ends in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

import edgefed
from edgefed.config.loading.write import to_toml
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import DataError, RecipeError, UnknownNameError, UsageError
from tests.api.small import npz, recipe
from tests.cli.commands import edgefed as command
from tests.cli.commands import recipe_file
from tests.programs.forked_programs import run_module


def test_every_form_of_a_recipe_ends_as_on_the_command_line(tmp_path: Path) -> None:
    tables = recipe(name="small", data=npz(tmp_path), simulation={"workers": 2})
    file = tmp_path / "recipe.toml"
    file.write_text(to_toml(Recipe.model_validate(tables)))
    words = ("--state", str(tmp_path / "state"), "--quiet", "sim", "run", str(file), "--json")
    code, out, err = run_module("edgefed.cli.main", *words)
    assert (code, err) == (0, "")
    told = json.loads(out)
    results = [edgefed.simulate(form) for form in (tables, file, str(file), Recipe(**tables))]
    assert {each.weights_digest for each in results} == {told["weights_digest"]}
    varies = ("run", "seconds", "model")
    for each in results:
        assert {**each.to_json(), **{key: told[key] for key in varies}} == told


def test_a_seed_takes_the_place_of_the_recipes(tmp_path: Path) -> None:
    tables = recipe(data=npz(tmp_path))
    given, own = edgefed.simulate(tables, seed=8), edgefed.simulate({**tables, "seed": 8})
    assert given.weights_digest == own.weights_digest
    assert given.weights_digest != edgefed.simulate(tables).weights_digest
    assert given.recipe.seed == 8


def test_the_environment_and_settings_files_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = recipe(data=npz(tmp_path))
    before = edgefed.simulate(tables)
    (tmp_path / "edgefed.toml").write_text("[recipe.rounds]\ncount = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEFED_RECIPE_SEED", "9")
    monkeypatch.setenv("EDGEFED_SEED", "9")
    assert edgefed.simulate(tables).weights_digest == before.weights_digest


def test_a_path_in_a_file_starts_at_the_file(tmp_path: Path) -> None:
    npz(tmp_path)
    tables = recipe(data={"name": "npz", "path": "data.npz"})
    (tmp_path / "recipe.toml").write_text(to_toml(Recipe.model_validate(tables)))
    assert edgefed.simulate(tmp_path / "recipe.toml").rounds


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (5, UsageError, "A recipe cannot be a int."),
        ({"rounds": {"count": "2"}}, RecipeError, "rounds.count: must be a whole number"),
        ({"rounds": {"cuont": 2}}, RecipeError, "rounds.cuont: unknown key"),
        ({"algorithm": {"name": "alchemy"}}, UnknownNameError, "alchemy"),
        ({"algorithm": {"name": "fedprox", "mu": -1}}, RecipeError, "algorithm.mu: must be"),
        ({"data": {"name": "digits", "limt": 1}}, RecipeError, "data.limt: unknown key"),
        ({"model": {"name": object()}}, RecipeError, "no text, number, array or table"),
        ({"data": {"name": "memory"}}, DataError, "were passed to edgefed.simulate"),
        ("absent.toml", RecipeError, "absent.toml"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_told(
    given: Any, error: type[edgefed.EdgeFedError], words: str
) -> None:
    with pytest.raises(error) as told:
        edgefed.simulate(given)
    assert words in told.value.message
    assert told.value.code


def test_a_users_own_code_can_be_refused(tmp_path: Path) -> None:
    own = recipe(data=npz(tmp_path), model={"name": "tests.api.own_model:make"})
    assert edgefed.simulate(own).rounds
    with pytest.raises(DataError) as told:
        edgefed.simulate(own, user_models=False)
    assert told.value.code == "model.refused"


def shown(state: Path) -> Callable[[dict[str, Any]], Any]:
    words = ("run", "show", "--local", "--json")
    return lambda row: command(*words, row["run"], state=state).json


def test_what_is_kept_in_a_folder(tmp_path: Path) -> None:
    tables = recipe(data=npz(tmp_path))
    state = tmp_path / "state"
    kept = edgefed.simulate(tables, folder=state, audit=True)
    assert kept.folder is not None
    file = recipe_file(tmp_path, to_toml(kept.recipe))
    assert command("--quiet", "sim", "run", file, state=state).code == 0
    rows = command("run", "list", "--local", "--json", state=state).json
    assert [Path(row["folder"]).parent for row in map(shown(state), rows)] == [
        kept.folder.parent
    ] * 2
    assert shown(state)(rows[1])["folder"] == str(kept.folder)
    model = kept.folder / "model.safetensors"
    assert (kept.to_json()["model"], model.read_bytes()) == (str(model), kept.file)
    assert {name: array.tobytes() for name, array in load_file(model).items()} == {
        name: array.tobytes() for name, array in kept.weights.items()
    }
    lines = (kept.folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [dict(row) for row in kept.rounds]
    assert list(kept.folder.glob("audit*"))
    assert edgefed.simulate(tables).folder is None


def test_a_backend_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="no backend 'rai'"):
        edgefed.simulate(on="rai")  # type: ignore[arg-type]


def test_an_address_needs_a_cluster() -> None:
    with pytest.raises(UsageError, match="--on ray"):
        edgefed.simulate(recipe(), address="192.0.2.1:6379")
