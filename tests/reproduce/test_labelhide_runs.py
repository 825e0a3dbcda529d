"""Cells of the DP-LabelHide tables, executed: supplements arrive, and they help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgefed.api.recipe_source import checked
from edgefed.reproduce.measure import entries
from edgefed.reproduce.outputs import write_outputs
from edgefed.reproduce.paper_tables import find
from edgefed.reproduce.plan import make_study
from edgefed.simulator.sweep.trials import run_trials
from tests.run_fixture import Ticking

pytest.importorskip("sklearn", reason="the digits are not installed")

MIXES, NOISE, NONE = "100% Mix/0% Nat", "0% Mix/100% Nat", "No Supplement"
LACKING = 9
COUNT = 8
"""With one label a device, 20 % of some 40 samples for each of nine labels."""


@pytest.mark.slow
def test_supplements_arrive_and_help(tmp_path: Path) -> None:
    study = make_study(
        *(find("labelhide-cifar10"), "smoke", checked),
        seeds=(1,),
        rows=(MIXES, NOISE, NONE),
        columns=("20 %, C = 1",),
        scratch=tmp_path,
    )
    outcome = run_trials(study.plan(), tmp_path, Ticking())
    assert outcome.failures == {}
    wanted = 10 * LACKING * COUNT
    told = {result.case: _notes(tmp_path / result.folder) for result in outcome.results.values()}
    (notes,) = (each for case, each in told.items() if case.endswith(f"/ {MIXES}"))
    assert any(f"{wanted:,} of {wanted:,} mixes are there" in note for note in notes)
    accuracy = {each.cell.row.label: each.accuracy.mean or 0 for each in entries(study, outcome)}
    assert accuracy[NONE] < accuracy[NOISE] < accuracy[MIXES]
    write_outputs(study, outcome, tmp_path / "table")
    picture = tmp_path / "table" / "01-digits-20-c-1.svg"
    assert all(row in picture.read_text() for row in (MIXES, NOISE, NONE)), "Figure 2"


def _notes(folder: Path) -> list[str]:
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event.get("text", "") for event in map(json.loads, lines)]
