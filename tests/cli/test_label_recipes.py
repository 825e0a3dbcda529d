"""The recipe's ``[labels]`` table: what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import edgefed, recipe_file

GLOBAL = "[labels]\nsupplement = 0.1\nothers = 'global'\n"


def test_a_range_of_weights_upside_down_is_refused(tmp_path: Path) -> None:
    for table, line in (("low = 0.9\nhigh = 0.6\n", ":3"), ("low = 0.9\n", ":1")):
        path = recipe_file(tmp_path, f"[labels]\n{table}")
        told = edgefed("config", "check", path, state=tmp_path)
        assert told.code == 8
        assert told.out == f"{path}{line}: labels.high: must be at least low, which is 0.9\n"
    fine = recipe_file(tmp_path, "[labels]\nsupplement = 0.1\nlow = 0.6\nhigh = 0.6\n")
    assert edgefed("config", "check", fine, state=tmp_path).code == 0


def test_samples_of_all_devices_are_not_asked_of_real_ones(tmp_path: Path) -> None:
    path = recipe_file(tmp_path, GLOBAL)
    told = edgefed("demo", "--headless", "--recipe", path, state=tmp_path / "state")
    told.failed(2, "run.simulation_only", "labels.others", "sim run")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("table", "code", "why"),
    [
        ("count = 1000000\n\n[data]\nname = 'digits'\n", "label.too_large", "GiB"),
        ("supplement = 0.1\n\n[training]\nloss = 'squared_error'\n", "", "squared"),
        ("supplement = 0.1\nnoise = 'brown'\n", "", "noise"),
        ("supplement = -0.1\n", "", "supplement"),
        ("count = -1\n", "", "count"),
        ("supplement = 0.1\nlow = 0.4\n", "", "low"),
    ],
)
def test_a_simulation_refuses_what_cannot_be(
    tmp_path: Path, table: str, code: str, why: str
) -> None:
    path = recipe_file(tmp_path, f"[labels]\n{table}")
    ended = edgefed("sim", "run", path, state=tmp_path / "state")
    assert ended.code in (1, 2)
    assert why in ended.err
    assert code in ended.err
