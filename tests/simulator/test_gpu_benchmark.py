"""The benchmark for a GPU runs, if tiny, on a CPU; without a GPU it says so in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def benchmark(*words: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "benchmarks.gpu", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line() -> None:
    code, out, err = benchmark()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "torch sees 0 CUDA devices" in err


@pytest.mark.slow
def test_tiny_and_on_a_cpu_it_measures_both_ways() -> None:
    small = ("--device", "cpu", "--small", "--rounds", "2")
    code, out, err = benchmark(*small, "--models", "lenet5", "resnet18", "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)["rows"]
    ways = [(row["model"], row["way"]) for row in rows]
    both = ("sequential", "stacked")
    assert ways == [(model, way) for model in ("lenet5", "resnet18") for way in both]
    for row in rows:
        assert row["failed"] == ""
        assert min(row["round_s"], row["updates_per_s"], row["resident_mb"], row["ratio"]) > 0
    assert [row["ratio"] for row in rows if row["way"] == "sequential"] == [1.0, 1.0]
