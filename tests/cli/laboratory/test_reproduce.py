"""``edgefed reproduce`` as a user types it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgefed.process.lock import FolderLock
from edgefed.reproduce.paper_tables import tables
from edgefed.reproduce.plan import LEFT_OUT
from tests.cli.commands import edgefed

TABLE = "fedma-table1"


@pytest.mark.parametrize("words", [(), ("--list",), (TABLE, "--list")])
def test_without_a_name_the_tables_are_listed(words: tuple[str, ...]) -> None:
    told = edgefed("reproduce", *words)
    assert (told.code, told.err) == (0, "")
    assert [line.split()[0] for line in told.out.splitlines()[1:]] == [*tables()]


def test_the_list_as_json_says_what_is_known() -> None:
    told = edgefed("reproduce", "--json")
    assert [each["table"] for each in told.json] == [*tables()]
    first = next(each for each in told.json if each["table"] == "fedmix-table1")
    assert first["paper"]["where"] == "ICLR 2021"
    assert "lost" in first["known"]


def test_an_unknown_table_names_the_nearest() -> None:
    edgefed("reproduce", "fedmix-tabel1").failed(5, "reproduce.unknown", '"fedmix-table1"')


def test_an_unknown_scale_names_the_nearest() -> None:
    edgefed("reproduce", TABLE, "--scale", "smal").failed(2, "reproduce.scale", '"small"')


def test_seeds_are_whole_numbers() -> None:
    edgefed("reproduce", TABLE, "--seeds", "1,x").failed(2, "usage", "--seeds 1,x")
    edgefed("reproduce", TABLE, "--seeds=-1").failed(2, "usage", "whole numbers from 0")
    edgefed("reproduce", TABLE, "--seeds", "2,1,1").failed(2, "usage", "each seed once")


def test_data_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("reproduce", "fedmix-table1", "--scale", "small", "--out", out)
    edgefed(*words).failed(2, "data.missing", "MNIST by writer", "--data")
    edgefed(*words, "--data", tmp_path).failed(2, "data.missing", "mnist/mnist.npz")
    assert not out.exists()


def test_recipes_are_written_and_none_is_run(tmp_path: Path) -> None:
    words = ("reproduce", TABLE, "--out", tmp_path / "out", "--recipes", tmp_path / "recipes")
    told = edgefed(*words)
    assert (told.code, told.err) == (0, "")
    paths = [Path(line) for line in told.out.splitlines()]
    assert sorted(paths) == sorted((tmp_path / "recipes").iterdir())
    assert edgefed(*words, "--json").json == [str(path) for path in paths]
    made = [path.name for path in (tmp_path / "out").iterdir()]
    assert made == ["made.jsonl"], "the data that the recipes name, and no results"
    assert edgefed("config", "check", paths[0]).code == 0


def test_a_part_of_a_table(tmp_path: Path) -> None:
    folders = ("--out", tmp_path / "out", "--recipes", tmp_path / "recipes")
    words = ("reproduce", TABLE, *folders, "--row", "FedProx")
    told = edgefed(*words)
    assert [Path(line).name for line in told.out.splitlines()] == [
        "digits-fedprox.toml",
        "made-texts-fedprox.toml",
    ]
    edgefed(*words, "--column", "digitz").failed(5, "reproduce.part", '"digits"')


def points(cells: list[dict[str, Any]]) -> list[float]:
    return [cell["accuracy"]["mean"] for cell in cells]


def test_a_table_from_end_to_end(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the digits are not installed")
    part = ("--row", "FedAvg", "--row", "FedProx", "--column", "digits")
    words = ("reproduce", TABLE, *part, "--out", tmp_path / "out", "--seeds", "1,2")
    told = edgefed(*words, state=tmp_path / "state")
    assert told.code == 0, told
    assert (tmp_path / "out" / "lock").read_text().startswith("edgefed reproduce, process")
    head, *lines = told.out.splitlines()
    assert head.startswith("fedma-table1, scale smoke: ")
    assert "ACCURACY %" in lines[1]
    assert "86.3 (CIFAR-10)" in told.out
    assert "FedAvg > FedProx" in told.out
    (left_out,) = (line for line in told.out.splitlines() if line.endswith(LEFT_OUT))
    assert "FedMA" in left_out
    again = edgefed(*words, "--json", state=tmp_path / "state")
    assert again.code == 0
    assert again.err.count("done before") == 4
    cells = again.json["cells"]
    assert [(cell["row"], cell["column"]) for cell in cells] == [
        ("FedAvg", "digits"),
        ("FedProx", "digits"),
    ]
    assert [cell["published"] for cell in cells] == [0.8629, 0.8532]
    for cell, line in zip(cells, lines[2:4], strict=True):
        assert f"{100 * cell['accuracy']['mean']:.1f} ±" in line
    assert all(value > 0.2 for value in points(cells)), "it learns something"
    (claim,) = (each for each in again.json["claims"] if each["claim"] == "FedAvg > FedProx")
    difference = cells[0]["accuracy"]["mean"] - cells[1]["accuracy"]["mean"]
    assert claim["mean"] == pytest.approx(difference)
    folder = tmp_path / "out" / "fedma-table1-smoke"
    assert {path.suffix for path in folder.iterdir()} == {".csv", ".json", ".svg"}


def test_two_at_once_do_not_share_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    lock = FolderLock(out, "a sweep")
    try:
        told = edgefed("--quiet", "reproduce", TABLE, "--out", out, state=tmp_path / "state")
    finally:
        lock.release()
    told.failed(4, "state.locked")
