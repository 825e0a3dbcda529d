"""The benchmark against peers runs: EdgeFed and the plain loop, which need no installing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.forked_programs import run_module


@pytest.mark.slow
def test_it_times_rounds_and_compares(tmp_path: Path) -> None:
    words = ["--only", "edgefed,plain", "--rounds", "1", "--cache", str(tmp_path), "--json"]
    code, out, err = run_module("benchmarks.sim_vs_peers", *words)
    assert code == 0, err
    found = json.loads(out)
    for row in found["systems"].values():
        assert all(value > 0 for value in row.values())
    own, plain = (found["systems"][name]["updates_per_s"] for name in ("edgefed", "plain"))
    assert found["ratio_to_plain"] == pytest.approx(own / plain, abs=0.01)
