"""``edgefed data``: partition data into shards, and show what each device holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from edgefed.cli.main import app
from edgefed.coordinator.models.run_model import load_dataset
from edgefed.data.devices.partition import deal
from edgefed.data.devices.sources import load_device
from tests.data.helpers import write_npz
from tests.processes import outcome, start_module

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's settings and state out, and the terminal at 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("EDGEFED_NO_CONFIG", "1")
    monkeypatch.setenv("COLUMNS", "80")


def edgefed(*words: str) -> Result:
    return RUNNER.invoke(app, ["data", *words])


def _recipe(folder: Path, data: str = "", more: str = "") -> Path:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (200, 4, 4), np.uint8)
    write_npz(folder / "all.npz", x=x, y=np.arange(200) % 5, classes=np.int64(6))
    recipe = folder / "mine.toml"
    recipe.write_text(
        f'name = "mine"\nseed = 3\n[data]\nname = "npz"\npath = "all.npz"\n{data}\n{more}'
    )
    return recipe


def test_a_split_is_what_a_simulation_deals(tmp_path: Path) -> None:
    recipe = _recipe(tmp_path, more="[simulation]\nholdout = 0.25\n")
    done = edgefed("split", str(recipe), "--out", "shards", "--devices", "4")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "4 devices, 120 training and 40 test samples of 'npz' in shards\n"
    index = json.loads((tmp_path / "shards" / "split.json").read_text())
    assert (index["recipe"], index["seed"], index["holdout"]) == ("mine", 3, 0.25)
    assert index["data"]["path"] == str(tmp_path / "all.npz")

    from edgefed.cli.common.context import Globals
    from edgefed.cli.common.recipes import Typed, checked_recipe

    made = checked_recipe(Globals(), Typed(recipe, devices=4))
    wanted = deal(load_dataset(made, tmp_path), made.data, 4, 0.25, made.seed)
    for number, shard in enumerate(wanted):
        read = load_device(f"npz:shards/device-0{number}.npz", holdout=0)
        assert np.array_equal(read.train.inputs, shard.train.inputs)
        assert np.array_equal(read.test.targets, shard.test.targets)


def test_json_of_a_split_is_its_index_and_a_seed_deals_otherwise(tmp_path: Path) -> None:
    recipe = str(_recipe(tmp_path))
    done = edgefed("split", recipe, "--out", "a", "--json")
    assert json.loads(done.stdout) == json.loads((tmp_path / "a" / "split.json").read_text())
    edgefed("split", recipe, "--out", "b", "--seed", "4")
    one, other = ((tmp_path / name / "device-00.npz").read_bytes() for name in "ab")
    assert one != other


def test_a_folder_with_something_in_it_needs_force(tmp_path: Path) -> None:
    recipe = str(_recipe(tmp_path))
    assert edgefed("split", recipe, "--out", "a", "--devices", "3").exit_code == 0
    again = edgefed("split", recipe, "--out", "a", "--devices", "2")
    assert again.exit_code == 2
    assert again.stderr.startswith("edgefed: error: a is not empty.  [data.out]\n")
    assert len(list((tmp_path / "a").iterdir())) == 4
    assert edgefed("split", recipe, "--out", "a", "--devices", "2", "--force").exit_code == 0
    assert len(list((tmp_path / "a").iterdir())) == 3


def test_what_is_shown_of_a_recipe_of_its_split_and_of_one_shard_agrees(tmp_path: Path) -> None:
    recipe = str(_recipe(tmp_path, 'partition = "dirichlet-equal"\nalpha = 0.6'))

    def shown(*words: str) -> dict[str, Any]:
        done = edgefed("show", *words, "--json")
        assert done.exit_code == 0, done.stderr
        read: dict[str, Any] = json.loads(done.stdout)
        return read

    edgefed("split", recipe, "--out", "shards", "--devices", "3")
    of_recipe, of_folder = shown(recipe, "--devices", "3"), shown("shards")
    assert of_recipe["devices"] == of_folder["devices"]
    assert of_recipe["concentration"]["values"] == pytest.approx([0.12])
    for target in ("shards/device-01.npz", "npz:shards/device-01.npz"):
        of_shard = shown(target)
        assert of_shard["devices"] == [of_recipe["devices"][1]]
        assert of_shard["classes"] == 6


def test_shown_to_people_it_fits_80_columns(tmp_path: Path) -> None:
    recipe = _recipe(tmp_path, 'partition = "dirichlet"\nmin_samples = 1\nnormalize = true')
    done = edgefed("show", str(recipe), "--devices", "12")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "DEVICE     SAMPLES  0 1 2 3 4 5"
    assert lines[13].startswith("all            160  █ █ █ █ █ ·")
    assert max(map(len, lines)) <= 80
    assert "160 training and 0 test samples of shape 1x4x4, 5 of 6 labels" in lines
    assert "Dirichlet over devices, for each label: 12 components of 0.5" in lines
    assert any(line.startswith("normalised with mean 0.") for line in lines)


def test_columns_are_shown_with_their_categories() -> None:
    words = ("show", "--devices", "2", "--set", "data.transform=rotation")
    told = edgefed(*words).stdout
    assert "columns, with their numbers of categories: rotation (8)" in told.splitlines()
    assert json.loads(edgefed(*words, "--json").stdout)["columns"] == {"rotation": 8}


def test_without_a_target_it_is_the_default_recipe() -> None:
    done = edgefed("show", "--devices", "2")
    assert done.exit_code == 0
    assert "shape 1x8x8" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("show", "nope.toml"), 2, "nope.toml: the file does not exist"),
        (("show", "nope.npz"), 2, "nope.npz does not exist"),
        (("show", "nzp:a.npz"), 2, "no kind of data 'nzp'"),
        (("show", "empty"), 1, "empty has no .npz files"),
        (("show", "bad.npz"), 1, "bad.npz cannot be read"),
        (("show", "npz:all.npz", "--devices", "3"), 2, "no recipe is shown"),
        (("show", "mine.toml", "--devices", "999"), 1, "cannot be divided among 999 devices"),
        (("show", "mine.toml", "--devices", "0"), 2, "must be at least 1"),
        (("show", "mine.toml", "--set", "data.classes_per_device=6"), 1, "the data has 5"),
        (("show", "mine.toml", "--set", "data.classes_per_device=7"), 1, "but there are 6"),
        (("show", "mine.toml", "--set", "data.partition=dirichle"), 2, "no such partition"),
        (("show", "mine.toml", "--set", "data.blance=true"), 2, "data.blance: unknown key"),
        (("show", "mine.toml", "--set", "data.path=gone.npz"), 2, "gone.npz does not exist"),
        (
            ("show", "mine.toml", "--set", "data.partition=dirichlet", "--set", "data.alpha=1e-9"),
            1,
            "draws with alpha = 1e-09",
        ),
        (("split", "mine.toml", "--out", "bad.npz"), 2, "bad.npz is a file"),
        (("split", "mine.toml", "--out", "bad.npz/a"), 1, "Cannot use"),
    ],
)
def test_what_is_wrong_is_one_clear_line(
    tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    _recipe(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.npz").write_text("not an archive")
    before = sorted(path.name for path in tmp_path.iterdir())
    done = edgefed(*words)
    assert done.exit_code == code, done.stderr
    assert done.stdout == ""
    assert message in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    as_json = json.loads(edgefed(*words, "--json").stderr)
    assert as_json["error"]["code"]


def test_help_tells_both_commands() -> None:
    done = edgefed("--help")
    assert "split" in done.stdout
    assert "show" in done.stdout


def test_a_data_set_that_is_missing_ends_in_two_lines(tmp_path: Path) -> None:
    """No library reports after them what it left in memory, as triton does where there is one."""
    missing = ("--set", "data.name=mnist", "--set", f"data.path={tmp_path / 'none'}")
    proxy = "http://127.0.0.1:9"  # so that nothing is downloaded
    environment = {"http_proxy": proxy, "https_proxy": proxy}
    words = ("--state", str(tmp_path), "--no-config", "sim", "run", *missing)
    code, out, err = outcome(start_module("edgefed.cli.main", *words, environment=environment))
    assert (code, out) == (1, "")
    assert [line.split(": ")[0].strip() for line in err.splitlines()] == ["edgefed", "try"], err
