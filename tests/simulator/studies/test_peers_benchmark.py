"""The benchmark against peers runs: EdgeFed and the plain loop, which need no installing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_it_times_rounds_and_compares(tmp_path: Path) -> None:
    words = ["--only", "edgefed,plain", "--rounds", "4", "--cache", str(tmp_path), "--json"]
    command = [sys.executable, "-m", "benchmarks.sim_vs_peers", *words]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(told.stdout)
    for row in found["systems"].values():
        assert all(value > 0 for value in row.values())
    own, plain = (found["systems"][name]["updates_per_s"] for name in ("edgefed", "plain"))
    assert found["ratio_to_plain"] == pytest.approx(own / plain, abs=0.01)
