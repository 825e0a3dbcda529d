"""The benchmark of matching runs, and its row by row loop finds the same matching."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.matching import SETTINGS, planted
from benchmarks.peers.matching_rows import RowMatching
from edgefed.learn.matching.layer import match_layer
from tests.forked_programs import run_module
from tests.learn.matching_problems import pairs


@pytest.mark.slow
def test_the_benchmark_reports_seconds_atoms_and_objective() -> None:
    words = ("--repeats", "1", "--units", "24", "--numbers", "40", "--json")
    code, out, err = run_module("benchmarks.matching", *words)
    assert code == 0, err
    told = json.loads(out)
    for suffix in ("", "_auto", "_random", "_random_auto"):
        assert told[f"seconds_16_24_40{suffix}"] > 0
        assert told[f"atoms_16_24_40{suffix}"] >= 24
    assert told["atoms_16_24_40"] == 24
    beside = told["row_by_row"]
    assert beside["objective"] == pytest.approx(beside["rows_objective"], rel=1e-9)
    for row in told["rows"]:
        assert 0 < row["share_cost"] + row["share_assignment"] < 1


def test_the_loop_finds_the_matching_that_the_reference_settings_find() -> None:
    weights = planted(20, 12)
    rows = RowMatching(weights)
    rows.run(1)
    found = match_layer(weights, settings=SETTINGS["reference"], rng=np.random.default_rng(1))
    assert np.array_equal(
        pairs([np.array(each) for each in rows.assignments]), pairs(found.assignments)
    )
