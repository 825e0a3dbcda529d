"""A relative path of data or weights starts at the folder of the file that contains it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.cli.common.context import Globals
from edgefed.cli.common.recipes import Typed, checked_recipe


def data_path(typed: Typed) -> object:
    return checked_recipe(Globals(no_config=True), typed).data.settings()["path"]


def test_in_a_recipe_it_starts_at_the_recipes_folder(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[data]\nname = "npz"\npath = "mine.npz"\n')
    assert data_path(Typed(recipe)) == str(tmp_path / "mine.npz")


def test_on_the_command_line_it_starts_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = Typed(sets=["data.name=npz", "data.path=data/mine.npz"])
    assert data_path(typed) == str(tmp_path / "data/mine.npz")


def test_an_absolute_one_and_an_empty_one_stay(tmp_path: Path) -> None:
    for path in ("/data/mine.npz", "~/mine.npz", ""):
        assert data_path(Typed(sets=["data.name=mnist", f"data.path={path}"])) == path


def test_a_name_on_a_hub_stays_and_a_folder_is_found_beside_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[data]\nname = "huggingface"\npath = "ylecun/mnist"\n')
    assert data_path(Typed(recipe)) == "ylecun/mnist"
    (tmp_path / "ylecun" / "mnist").mkdir(parents=True)
    assert data_path(Typed(recipe)) == str(tmp_path / "ylecun" / "mnist")


def test_weights_are_found_beside_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"

    def found(key: str, value: str) -> object:
        recipe.write_text(f'[model]\nname = "mlp"\n{key} = "{value}"\n')
        section = checked_recipe(Globals(no_config=True), Typed(recipe)).model
        return getattr(section, key)

    for key, name in (("weights", "trunk.pth"), ("start", "yesterday/model.safetensors")):
        assert found(key, name) == name, "of the coordinator's folder"
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        assert found(key, name) == str(tmp_path / name)
    assert found("weights", "default") == "default"
    assert found("start", "run:r-0007") == "run:r-0007"
