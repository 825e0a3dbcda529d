"""The benchmark of a mixture of experts runs, and counts the bytes that the experts take."""

from __future__ import annotations

import json

import pytest

from benchmarks.experts import ANCHORS, CLASSES, VARIANTS, Device, Variant
from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from tests.forked_programs import run_module


def demo() -> Model:
    anchor = ANCHORS["cnn"]
    return build(ModelSection(name=anchor.model), anchor.shape, CLASSES, 1)


@pytest.mark.slow
def test_the_benchmark_reports_ratios_to_fedavg() -> None:
    words = ("--repeats", "1", "--models", "cnn", "--json")
    code, out, err = run_module("benchmarks.experts", *words)
    assert code == 0, err
    told = json.loads(out)
    rows = {row["variant"]: row for row in told["rows"]}
    assert rows.keys() == {"FedAvg", *VARIANTS}
    assert told["step_ratio_k4_demo"] == rows["4 experts"]["step_ratio"] > 0
    assert "step_ratio_k4" not in told
    assert 3.5 < rows["4 experts"]["bytes_ratio"] < 4.2
    assert 1.8 < rows["4 pruned to 2"]["bytes_ratio"] < 2.2


def test_the_variants_are_what_they_say() -> None:
    model, anchor = demo(), ANCHORS["cnn"]
    experts = {
        name: Device(anchor, variant, model).job().objective for name, variant in VARIANTS.items()
    }
    assert experts["4 pruned to 2"].kept == (0, 1)  # type: ignore[attr-defined]
    assert experts["4 specialised, skipping"].skip_below == 0.02  # type: ignore[attr-defined]
    shares = Variant(4, sharp=True).table()
    assert abs(float(shares[5, 1]) - float(shares[5, 0])) > 4
