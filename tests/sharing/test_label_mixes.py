"""DP-LabelHide's mixes: algorithm 1, its invariants, and what a device declines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgefed.errors import DataError, UsageError
from edgefed.files.samples import Samples
from edgefed.sharing.label_mixes import (
    MixDeclined,
    MixSettings,
    Others,
    draw_ingredients,
    mix_label,
    quantised,
    reason_to_decline,
)

LABELS = np.array([0, 1, 1, 2, 0, 1, 2, 2, 2, 0])


def drawn(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def images(count: int = 10, seed: int = 1) -> Samples:
    inputs = drawn(seed).random((count, 1, 3, 3)).astype(np.float32)
    return Samples(inputs, np.resize(LABELS, count))


@pytest.mark.parametrize("width", [2, 3, 4, 7])
def test_weights_sum_to_one_and_the_first_one_dominates(width: int) -> None:
    weights = draw_ingredients(LABELS, 1, 3000, MixSettings(width=width), drawn()).weights
    assert weights.shape == (3000, width)
    assert np.abs(weights.sum(axis=1) - 1).max() < 1e-12
    assert weights.min() >= 0
    first = weights[:, 0]
    assert 0.5 <= first.min() < 0.505 and 0.745 < first.max() <= 0.75
    assert first.mean() == pytest.approx(0.625, abs=0.005)
    assert (first[:, None] >= weights[:, 1:]).all()
    for slot in range(1, width):
        assert weights[:, slot].mean() == pytest.approx(0.375 / (width - 1), rel=0.06)


def test_the_range_of_the_first_weight_is_a_setting() -> None:
    settings = MixSettings(low=0.9, high=0.9)
    weights = draw_ingredients(LABELS, 1, 50, settings, drawn()).weights
    assert weights[:, 0] == pytest.approx(np.full(50, 0.9))
    assert weights[:, 1:].sum(axis=1) == pytest.approx(np.full(50, 0.1))


@pytest.mark.parametrize(
    ("others", "allowed"),
    [("other_classes", {0, 3, 4, 6, 7, 8, 9}), ("any", set(range(10))), ("global", set(range(25)))],
)
def test_ingredients_come_from_where_the_settings_say(others: Others, allowed: set[int]) -> None:
    made = draw_ingredients(LABELS, 1, 2000, MixSettings(others=others), drawn(), pool=25)
    assert set(made.targets.tolist()) == {1, 2, 5}
    assert np.bincount(made.targets)[[1, 2, 5]].min() > 600
    assert set(made.others.ravel().tolist()) == allowed
    assert all(len(set(row)) == 3 for row in made.others.tolist())
    if others != "global":
        assert (made.others != made.targets[:, None]).all()


def test_partners_are_drawn_evenly() -> None:
    made = draw_ingredients(LABELS, 1, 6000, MixSettings(others="other_classes"), drawn())
    counts = np.bincount(made.others.ravel(), minlength=10)
    assert counts[LABELS != 1] == pytest.approx(np.full(7, 18_000 / 7), rel=0.06)
    counts = np.bincount(
        draw_ingredients(LABELS, 1, 6000, MixSettings(), drawn()).others.ravel(), minlength=10
    )
    assert counts[LABELS != 1] == pytest.approx(np.full(7, 2000), rel=0.07)
    assert counts[LABELS == 1] == pytest.approx(np.full(3, 2000 * 2 / 3), rel=0.07)


def test_without_noise_a_mix_is_the_weighted_sum() -> None:
    samples, settings = images(), MixSettings(noise_scale=0)
    made = draw_ingredients(samples.targets, 2, 5, settings, drawn(3))
    mixes = mix_label(samples, 2, 5, settings, drawn(3))
    assert mixes.dtype == np.float32
    for place, mix in enumerate(mixes):
        numbers = [made.targets[place], *made.others[place]]
        expected = sum(
            weight * samples.inputs[number]
            for weight, number in zip(made.weights[place], numbers, strict=True)
        )
        assert mix == pytest.approx(expected, abs=1e-6)


def test_the_noise_is_laplace_of_the_settings_scale() -> None:
    samples = Samples(np.full((10, 3, 40, 40), 0.5, np.float32), LABELS)
    scale = 0.05
    mixes = mix_label(samples, 1, 60, MixSettings(noise_scale=scale, clip=False), drawn())
    noise = mixes.astype(float) - 0.5
    assert noise.mean() == pytest.approx(0, abs=3e-4)
    assert np.abs(noise).mean() == pytest.approx(scale, rel=0.01)
    assert noise.var() == pytest.approx(2 * scale**2, rel=0.02)
    assert np.abs(np.corrcoef(noise.reshape(60, -1)[:10])[~np.eye(10, dtype=bool)]).max() < 0.06


def test_clipping_is_an_option() -> None:
    samples = images()
    free = mix_label(samples, 1, 50, MixSettings(noise_scale=0.5, clip=False), drawn())
    cut = mix_label(samples, 1, 50, MixSettings(noise_scale=0.5), drawn())
    assert free.min() < 0 and free.max() > 1
    assert np.array_equal(cut, np.clip(free, 0, 1))


def test_a_width_of_one_is_a_sample_with_noise() -> None:
    samples = images()
    made = draw_ingredients(LABELS, 1, 4, MixSettings(width=1), drawn())
    assert made.weights.tolist() == [[1.0]] * 4
    assert made.others.shape == (4, 0)
    mixes = mix_label(samples, 1, 4, MixSettings(width=1, noise_scale=0), drawn())
    assert np.array_equal(mixes, samples.inputs[made.targets])
    alone = Samples(samples.inputs[:1], np.array([4]))
    assert mix_label(alone, 4, 2, MixSettings(width=1), drawn()).shape == (2, 1, 3, 3)


def test_more_mixes_than_samples_reuse_them_with_other_partners() -> None:
    samples = Samples(images().inputs, np.array([5] + [1] * 9))
    mixes = mix_label(samples, 5, 40, MixSettings(noise_scale=0), drawn())
    assert len(np.unique(mixes.reshape(40, -1), axis=0)) == 40


def test_bytes_are_mixed_as_pixels_from_zero_to_one() -> None:
    codes = drawn().integers(0, 256, (10, 1, 3, 3)).astype(np.uint8)
    settings = MixSettings(noise_scale=0.02)
    floats = Samples((codes / 255).astype(np.float32), LABELS)
    mixes = mix_label(Samples(codes, LABELS), 1, 5, settings, drawn())
    assert mixes == pytest.approx(mix_label(floats, 1, 5, settings, drawn()), abs=1e-6)


def test_a_pool_of_others_is_mixed_in() -> None:
    samples = Samples(np.zeros((10, 1, 3, 3), np.float32), LABELS)
    settings = MixSettings(others="global", noise_scale=0)
    pool = np.ones((7, 1, 3, 3), np.float32)
    mixes = mix_label(samples, 1, 30, settings, drawn(), pool)
    weights = draw_ingredients(LABELS, 1, 30, settings, drawn(), 7).weights
    assert mixes[:, 0, 0, 0] == pytest.approx(1 - weights[:, 0], abs=1e-6)


def test_the_generator_alone_determines_mixes() -> None:
    samples, settings = images(), MixSettings(noise_scale=0)
    one, same, other = (mix_label(samples, 1, 3, settings, drawn(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_quantising_rounds_and_clips() -> None:
    values = np.array([-1, 0, 0.4 / 255, 0.6 / 255, 0.5, 1, 2], np.float32)
    assert quantised(values).tolist() == [0, 0, 0, 1, 128, 255, 255]
    assert quantised(values).dtype == np.uint8


@pytest.mark.parametrize(
    ("label", "settings", "words"),
    [
        (7, {}, "no sample of label 7"),
        (1, {"others": "other_classes", "width": 9}, "7 other samples, and a mix needs 8"),
        (1, {"width": 11}, "9 other samples, and a mix needs 10"),
        (1, {"others": "global"}, "0 other samples"),
    ],
)
def test_a_device_with_too_few_samples_declines(
    label: int, settings: dict[str, Any], words: str
) -> None:
    asked = MixSettings(**settings)
    assert words in reason_to_decline(LABELS, label, asked)
    with pytest.raises(MixDeclined, match=words) as caught:
        mix_label(images(), label, 1, asked, drawn())
    assert caught.value.code == "mix.declined"


@pytest.mark.parametrize(
    ("label", "settings"),
    [(1, {"others": "other_classes", "width": 8}), (1, {"width": 10}), (2, {"width": 1})],
)
def test_a_device_with_just_enough_samples_mixes(label: int, settings: dict[str, Any]) -> None:
    assert reason_to_decline(LABELS, label, MixSettings(**settings)) == ""
    assert len(mix_label(images(), label, 1, MixSettings(**settings), drawn())) == 1


@pytest.mark.parametrize(
    "inputs",
    [
        np.full((10, 4), 1.5, np.float32),
        np.full((10, 4), -0.1, np.float32),
        np.full((10, 4), np.nan, np.float32),
        np.zeros((10, 4), np.int64),
    ],
)
def test_inputs_that_are_no_pixels_are_refused(inputs: np.ndarray[Any, Any]) -> None:
    with pytest.raises(DataError) as caught:
        mix_label(Samples(inputs, LABELS), 1, 1, MixSettings(), drawn())
    assert caught.value.code == "mix.pixels"


def test_targets_that_are_no_labels_are_refused() -> None:
    samples = Samples(images().inputs, np.ones((10, 3), np.float32))
    with pytest.raises(DataError) as caught:
        mix_label(samples, 1, 1, MixSettings(), drawn())
    assert caught.value.code == "data.targets"


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 0},
        {"width": 65},
        {"low": 0.4},
        {"low": 0.8, "high": 0.7},
        {"high": 1.1},
        {"others": "all"},
        {"noise_scale": -1.0},
        {"noise_scale": float("nan")},
        {"noise_scale": float("inf")},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        MixSettings(**wrong)
    assert caught.value.code == "mix.settings"
