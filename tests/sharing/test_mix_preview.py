"""Mixes beside their samples: the same samples at each scale of the noise."""

from __future__ import annotations

import numpy as np
import pytest

from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.sharing.label_mixes import (
    MixDeclined,
    MixSettings,
    draw_ingredients,
    mix_label,
    mixes_of,
    quantised,
)
from edgefed.sharing.mix_preview import preview_mixes

LABELS = np.arange(20) % 4


def drawn(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def images() -> Samples:
    return Samples(drawn(5).random((20, 1, 6, 6)).astype(np.float32), LABELS)


def test_a_mix_is_the_weighted_sum_of_its_sources() -> None:
    samples = images()
    made = preview_mixes(samples, 2, 5, MixSettings(), (0.0, 0.1), drawn())
    assert made.samples.targets is samples.targets
    for mix in range(5):
        sources = made.sources(mix)
        assert LABELS[sources[0][0]] == 2
        weights = [weight for _, weight in sources]
        assert weights == sorted(weights, reverse=True)
        assert len({number for number, _ in sources}) == 4
        whole = sum(
            (weight * samples.inputs[number].astype(np.float64) for number, weight in sources),
            start=np.zeros((1, 6, 6)),
        )
        assert np.abs(made.mixes[0.0][mix] - whole * 255).max() < 0.51


def test_each_scale_has_the_same_samples_and_noise_of_its_own() -> None:
    made = preview_mixes(images(), 2, 200, MixSettings(), (0.0, 0.02, 0.04), drawn())
    exact = made.mixes[0.0].astype(np.float64)
    inner = (exact > 90) & (exact < 165)  # where clipping is rare
    noise = [(made.mixes[scale] - exact)[inner] / 255 for scale in (0.02, 0.04)]
    for each, scale in zip(noise, (0.02, 0.04), strict=True):
        assert np.abs(each).mean() == pytest.approx(scale, rel=0.06)
    assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 0.06


def test_samples_are_the_devices_bytes() -> None:
    samples = images()
    made = preview_mixes(samples, 0, 1, MixSettings(), (0.0,), drawn())
    assert np.array_equal(made.samples.inputs, quantised(samples.inputs))


def test_what_cannot_be_mixed_cannot_be_seen() -> None:
    with pytest.raises(MixDeclined, match="no sample of label 7"):
        preview_mixes(images(), 7, 1, MixSettings(), (0.0,), drawn())
    numbers = Samples(images().inputs, np.zeros((20, 1), np.float32))
    with pytest.raises(DataError, match="Only samples with labels"):
        preview_mixes(numbers, 0, 1, MixSettings(), (0.0,), drawn())


def test_mixes_of_drawn_ingredients_are_those_of_a_label() -> None:
    samples, generator = images(), drawn()
    made = draw_ingredients(LABELS, 1, 6, MixSettings(), generator)
    parts = mixes_of(made, samples.inputs, samples.inputs, MixSettings(), generator)
    assert np.array_equal(parts, mix_label(samples, 1, 6, MixSettings(), drawn()))
