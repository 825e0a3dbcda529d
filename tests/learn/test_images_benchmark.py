"""The benchmark of image folders runs, and training on one stays within its memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_benchmark_reports_rates_and_memory() -> None:
    command = [sys.executable, "-m", "benchmarks.images", "--images", "32", "--steps", "1"]
    done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, check=True)
    told = json.loads(done.stdout)
    assert told["warm_ratio"] == told["warm"] / told["torchvision"] > 0
    assert told["augmented_ratio"] == told["augmented"] / told["torchvision_augmented"] > 0
    assert told["cold_ratio"] == told["cold"] / told["torchvision"] > 0
    assert told["train_rate"] > 0
    assert 0 < told["rss_mb"] < 800
