"""The benchmarks of the learning core run, and what they measure is what they say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import experts, fedmix_step, images, matching
from benchmarks.peers.matching_rows import RowMatching
from edgefed.config.recipes.recipe import ModelSection
from edgefed.learn.directional.directional_derivative import DerivativeMethod, way_of
from edgefed.learn.matching.layer import match_layer
from edgefed.learn.modeling.model_building import build
from tests.learn.matching_problems import pairs
from tests.programs.forked_programs import printed_by


def reported(module: str, *words: str) -> dict[str, Any]:
    """Return what a benchmark reports of one repetition."""
    told: dict[str, Any] = json.loads(printed_by(module, "--repeats", "1", *words, "--json"))
    return told


@pytest.mark.slow
def test_image_folders_are_read_at_a_rate_and_trained_on_within_their_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(images, "printed_by", printed_by)
    told = images.measured(16, 1)
    assert told["warm_ratio"] == told["warm"] / told["torchvision"] > 0
    assert told["augmented_ratio"] == told["augmented"] / told["torchvision_augmented"] > 0
    assert told["cold_ratio"] == told["cold"] / told["torchvision"] > 0
    assert told["train_rate"] > 0
    assert 0 < told["rss_mb"] < 800


@pytest.mark.slow
def test_fedmix_reports_ratios_of_exact_gradients() -> None:
    told = reported("fedmix_step", "--models", "lenet5")
    assert told["ratio_lenet5"] > 0 and "ratio_vgg" not in told
    rows = {(row["kind"], row["variant"]): row for row in told["rows"]}
    assert {kind for kind, _ in rows} == {"as trained", "by torch"}
    assert told["ratio_lenet5"] == rows["as trained", "FedMix"]["ratio"]
    assert rows["as trained", "FedMix"]["error_float32"] < 1e-5
    for name in ("FedMix", "FedMix double backward"):
        row = rows["by torch", name]
        assert row["error"] < 1e-12 and row["error_float32"] < 1e-5


def test_the_second_way_of_fedmix_is_the_second_way() -> None:
    step = fedmix_step.Step(fedmix_step.ANCHORS["lenet5"], torch.float32)
    inputs = step.batch.inputs
    for forward, way in (
        (step.model.forward, DerivativeMethod.FORWARDS),
        (fedmix_step.plain(step.model.forward), DerivativeMethod.BACKWARDS),
    ):
        assert way_of(forward, step.params, inputs, inputs[:1]) is way


@pytest.mark.slow
def test_matching_reports_seconds_atoms_and_objective() -> None:
    told = reported("matching", "--units", "24", "--numbers", "40")
    for suffix in ("", "_auto", "_random", "_random_auto"):
        assert told[f"seconds_16_24_40{suffix}"] > 0
        assert told[f"atoms_16_24_40{suffix}"] >= 24
    assert told["atoms_16_24_40"] == 24
    beside = told["row_by_row"]
    assert beside["objective"] == pytest.approx(beside["rows_objective"], rel=1e-9)
    for row in told["rows"]:
        assert 0 < row["share_cost"] + row["share_assignment"] < 1


def test_the_loop_over_rows_finds_the_matching_that_the_reference_settings_find() -> None:
    weights, how = matching.planted(20, 12), matching.SETTINGS["reference"]
    rows = RowMatching(weights)
    rows.run(1)
    found = match_layer(weights, settings=how, rng=np.random.default_rng(1))
    ours = [np.array(each) for each in rows.assignments]
    assert np.array_equal(pairs(ours), pairs(found.assignments))


@pytest.mark.slow
def test_experts_report_ratios_to_fedavg() -> None:
    told = reported("experts", "--models", "cnn")
    rows = {row["variant"]: row for row in told["rows"]}
    assert rows.keys() == {"FedAvg", *experts.VARIANTS}
    assert told["step_ratio_k4_demo"] == rows["4 experts"]["step_ratio"] > 0
    assert "step_ratio_k4" not in told
    assert 3.5 < rows["4 experts"]["bytes_ratio"] < 4.2
    assert 1.8 < rows["4 pruned to 2"]["bytes_ratio"] < 2.2


def test_the_variants_of_experts_are_what_they_say() -> None:
    anchor = experts.ANCHORS["cnn"]
    model = build(ModelSection(name=anchor.model), anchor.shape, experts.CLASSES, 1)
    made: dict[str, Any] = {
        name: experts.Device(anchor, variant, model).job().objective
        for name, variant in experts.VARIANTS.items()
    }
    assert made["4 pruned to 2"].kept == (0, 1)
    assert made["4 specialised, skipping"].skip_below == 0.02
    shares = experts.Variant(4, sharp=True).table()
    assert abs(float(shares[5, 1]) - float(shares[5, 0])) > 4
