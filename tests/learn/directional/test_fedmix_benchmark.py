"""The benchmark of a FedMix step runs, and what it measures is exact."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks.fedmix_step import ANCHORS, Step, plain
from edgefed.learn.directional.directional_derivative import DerivativeMethod, way_of
from tests.forked_programs import run_module


@pytest.mark.slow
def test_the_benchmark_reports_ratios_of_exact_gradients() -> None:
    words = ("--repeats", "1", "--models", "lenet5", "--json")
    code, out, err = run_module("benchmarks.fedmix_step", *words)
    assert code == 0, err
    told = json.loads(out)
    assert told["ratio_lenet5"] > 0 and "ratio_vgg" not in told
    rows = {(row["kind"], row["variant"]): row for row in told["rows"]}
    assert {kind for kind, _ in rows} == {"as trained", "by torch"}
    assert told["ratio_lenet5"] == rows["as trained", "FedMix"]["ratio"]
    assert rows["as trained", "FedMix"]["error_float32"] < 1e-5
    for name in ("FedMix", "FedMix double backward"):
        row = rows["by torch", name]
        assert row["error"] < 1e-12 and row["error_float32"] < 1e-5


def test_the_benchmarks_second_way_is_the_second_way() -> None:
    step = Step(ANCHORS["lenet5"], torch.float32)
    inputs = step.batch.inputs
    forward = step.model.forward
    assert way_of(forward, step.params, inputs, inputs[:1]) is DerivativeMethod.FORWARDS
    assert way_of(plain(forward), step.params, inputs, inputs[:1]) is DerivativeMethod.BACKWARDS
