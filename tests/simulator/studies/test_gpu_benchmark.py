"""The benchmark for a GPU runs, if tiny, on a CPU; without a GPU it says so in one line."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import WORKS, Measurement, with_ratio, work_of
from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.stacked_trainer import can_stack
from tests.programs.forked_programs import printed_by, run_module


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line() -> None:
    code, out, err = run_module("benchmarks.gpu")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "torch sees 0 CUDA devices" in err


@pytest.mark.slow
def test_tiny_and_on_a_cpu_it_measures_both_ways(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "printed_by", printed_by)
    small = ["--cpu", "--no-pfl", "--small", "--rounds", "1", "--models", "lenet5", "--json"]
    monkeypatch.setattr("sys.argv", ["gpu", *small])
    gpu.main()
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["model"], row["way"]) for row in rows] == [
        ("lenet5", "sequential"),
        ("lenet5", "stacked"),
    ]
    for row in rows:
        assert row["failed"] == ""
        assert min(row["round_s"], row["updates_per_s"], row["resident_mb"], row["ratio"]) > 0
        assert row["transfers"] > 0 and row["transfer_mb"] > 0
    assert rows[0]["ratio"] == 1.0


@pytest.mark.parametrize("name", WORKS)
def test_the_network_of_each_work_can_be_stacked(name: str) -> None:
    work = work_of(name, small=True)
    model = build(ModelSection.model_validate(work.model), work.shape, work.classes, 1)
    assert can_stack(model)
    assert work.model == work_of(name, small=False).model


def test_each_model_is_compared_with_itself_one_after_another() -> None:
    beside = [Measurement("a", way, updates_per_s=rate) for way, rate in (("pfl", 1.5), ("x", 6))]
    assert [with_ratio(row, beside).over_pfl for row in beside] == [1.0, 4.0]
    figures = (("a", "sequential", 2.0), ("a", "stacked", 6.0), ("b", "sequential", 3.0))
    rows = [Measurement(model, way, updates_per_s=figure) for model, way, figure in figures]
    assert [with_ratio(row, rows).ratio for row in rows] == [1.0, 3.0, 1.0]
