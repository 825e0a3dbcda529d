"""``edgefed sim sweep`` as a user types it: its tables, warnings and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgefed.process.lock import FolderLock
from edgefed.simulator.sweep.outputs import TABLES
from tests.cli.commands import edgefed
from tests.simulator.sweep.sweeps import RECIPE, write

pytest.importorskip("sklearn", reason="the digits are not installed")

SWEEP = """
recipe = "recipe.toml"
seeds = [1, 2]
report = [{ metric = "accuracy", target = 0.01 }, "tau_ef", "tau_eff"]
baseline = "nova"
[choose]
[[cases]]
name = "plain"
[[cases]]
name = "nova"
algorithm.name = "fednova"
"""
VALIDATED = RECIPE + "[evaluation]\nvalidation_share = 0.2\n"


def test_the_tables_compare_and_choose(tmp_path: Path) -> None:
    file = write(tmp_path / "sweep", SWEEP, VALIDATED)
    told = edgefed("sim", "sweep", file, state=tmp_path / "state")
    assert told.code == 0
    head = told.out.splitlines()[0].split("  ")
    assert [word.strip() for word in head if word] == [
        *("CASE", "RUNS", "ACCURACY", "TAU_EF", "TAU_EFF", "ROUNDS TO 0.01", "SECONDS TO 0.01"),
        "CHOSEN",
    ]
    assert "difference to nova, paired by seed, with 95 % intervals" in told.out
    assert "(n=2)" in told.out
    assert "chosen: " in told.out
    warning = """! report: no finished run has 'tau_ef'; did you mean "tau_eff"?"""
    assert told.err.count(warning) == 1
    lines = told.err.splitlines()
    assert lines.index(warning) == 2, "after the first seed"
    folder = tmp_path / "sweep" / "sweep-results"
    assert {*TABLES} <= {path.name for path in folder.iterdir()}
    again = edgefed("sim", "sweep", file, "--json", state=tmp_path / "state")
    assert again.json == json.loads((folder / "table.json").read_text())
    assert [*again.json["missing"]] == ["tau_ef"]
    assert again.json["choices"][0]["by"] == "validation_accuracy"
    assert again.json["cases"][1]["tau_eff"]["count"] == 2


def test_a_metric_that_no_case_can_have_is_refused_before_the_first_run(tmp_path: Path) -> None:
    file = write(tmp_path / "sweep", SWEEP.replace('"tau_ef"', '"acuracy"'), VALIDATED)
    told = edgefed("sim", "sweep", file, state=tmp_path / "state")
    told.failed(2, "recipe.value", "sweep.toml:4: report[1]", "did you mean 'accuracy'")
    assert not (tmp_path / "sweep" / "sweep-results").exists()


def test_a_sweep_whose_every_run_fails_has_tables_with_the_reasons(tmp_path: Path) -> None:
    file = write(tmp_path / "sweep", SWEEP, VALIDATED)
    words = ("sim", "sweep", file, "--set", "simulation.devices=1000")
    told = edgefed(*words, state=tmp_path / "state")
    assert told.code == 7
    assert "All 4 runs failed: 80 training samples cannot be divided" in told.err
    assert "1000 devices.  [sweep.failed]\n  plain, seed 1: " in told.err
    assert told.out.count("0, 2 failed") == 2
    assert "accuracy.svg" not in told.err
    assert "chosen: none" in told.out
    folder = tmp_path / "sweep" / "sweep-results"
    for name in ("runs.csv", "table.md", "table.json"):
        assert (folder / name).read_text().count("1000 devices") == 4
    assert r"\bottomrule" in (folder / "table.tex").read_text()


def test_a_folder_in_use_names_the_option_for_another_one(tmp_path: Path) -> None:
    file = write(tmp_path / "sweep", SWEEP, VALIDATED)
    lock = FolderLock(tmp_path / "sweep" / "sweep-results", "a sweep")
    told = edgefed("sim", "sweep", file, state=tmp_path / "state")
    told.failed(4, "state.locked", "in use by a sweep, process", "--out")
    lock.release()
