"""Transforms of features: scaling, offset and drift of each device's inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.data.base.types import Array, Dataset
from edgefed.data.devices.partition import deal
from edgefed.data.sets.datasets import load
from edgefed.data.transforms.features import FEATURES, input_spread, skewed
from edgefed.errors import DataError, RecipeError
from edgefed.files.samples import PixelScale, Samples
from edgefed.seeds import generator
from edgefed.testing.play import bits
from tests.data.helpers import section

MODEST = settings(max_examples=25, deadline=None)
VALUES = np.array([[1.0, 10.0], [2.0, 30.0], [6.0, 20.0]], np.float32)


def _vectors(values: Array) -> Samples:
    return Samples(values, np.zeros(len(values), np.int64))


def _images(count: int = 40, channels: int = 3) -> Samples:
    rng = np.random.default_rng(0)
    spread = np.arange(1, channels + 1).reshape(-1, 1, 1)
    inputs = (rng.normal(size=(count, channels, 4, 4)) * spread).astype(np.float32)
    return Samples(inputs, np.arange(count) % 2)


def _dealt(samples: Samples, devices: int = 2, seed: int = 1, **keys: Any) -> list[Samples]:
    """Return each device's samples, in the order of the data set."""
    dataset = Dataset(samples, samples, 2, samples.inputs.shape[1:])
    keys = {"partition": "iid", "transform": "none", **keys}
    return [s.train for s in deal(dataset, section(**keys), devices, 0, seed, in_order=True)]


def _draws(count: int, size: tuple[int, ...], seed: int = 1) -> list[Array]:
    """Return what each device draws, from its number and the run's seed."""
    return [generator(seed, "partition", "transform", d).normal(size=size) for d in range(count)]


def test_the_formulas_by_hand() -> None:
    one = _vectors(VALUES)
    spread = input_spread(one)
    # The mean of 1, 2, 6 is 3, and the squared distances are 4, 1, 9; of 10, 30, 20: 100, 100, 0.
    assert np.allclose(spread, [np.sqrt(14 / 3), np.sqrt(200 / 3)])
    z, (first, second) = np.random.default_rng(5).normal(), np.random.default_rng(5).normal(size=2)

    def changed(transform: str) -> Array:
        rng = np.random.default_rng(5)
        return np.asarray(skewed(one, transform, 0.25, spread, rng).inputs)

    assert np.allclose(changed("scaling"), VALUES * 2.718281828 ** (0.25 * z))
    shift = np.array([0.25 * first * 2.160246899, 0.25 * second * 8.164965809])
    assert np.allclose(changed("offset"), VALUES + shift)
    assert np.allclose(changed("drift"), VALUES + np.array([[0], [0.5], [1]]) * shift)
    for transform in FEATURES:
        assert changed(transform).dtype == np.float32
        assert np.array_equal(one.inputs, VALUES), "the data set's own inputs stay"


def test_images_have_one_offset_for_each_channel_and_one_factor_in_all() -> None:
    plain = _images()
    assert input_spread(plain).shape == (3, 1, 1)
    assert np.allclose(input_spread(plain).ravel(), plain.inputs.std(axis=(0, 2, 3)), rtol=1e-5)
    before = _dealt(plain)
    offsets = _dealt(plain, transform="offset", feature_strength=2.0)
    spread = plain.inputs.std(axis=(0, 2, 3)).reshape(-1, 1, 1)
    for part, after, z in zip(before, offsets, _draws(2, (3, 1, 1)), strict=True):
        assert np.allclose(after.inputs - part.inputs, 2 * spread * z, atol=1e-5)
    factors = _dealt(plain, transform="scaling", feature_strength=1.0)
    for part, after, z in zip(before, factors, _draws(2, (1,)), strict=True):
        assert np.allclose(after.inputs / part.inputs, np.exp(z), rtol=1e-5)


def test_a_drift_begins_at_the_first_sample_and_ends_at_the_devices_last() -> None:
    plain = _images()
    before, after = _dealt(plain), _dealt(plain, transform="drift", feature_strength=2.0)
    ends = _dealt(plain, transform="offset", feature_strength=2.0)
    for part, drifted, end in zip(before, after, ends, strict=True):
        moved, whole = drifted.inputs - part.inputs, end.inputs - part.inputs
        assert np.array_equal(drifted.inputs[0], part.inputs[0])
        assert np.allclose(moved[-1], whole[-1], atol=1e-5)
        steps = np.diff(moved, axis=0)
        assert np.allclose(steps, steps.mean(axis=0), atol=1e-5)
    (alone,) = _dealt(_images(1), devices=1, transform="drift")
    assert np.array_equal(alone.inputs, _images(1).inputs)


@MODEST
@given(st.floats(0, 3), st.integers(0, 100))
def test_the_devices_mean_and_scale_tell_what_they_drew(strength: float, seed: int) -> None:
    plain = _images()
    keys: dict[str, Any] = {"seed": seed, "feature_strength": strength}
    before = _dealt(plain, seed=seed)
    for part, after in zip(before, _dealt(plain, transform="scaling", **keys), strict=True):
        ratio = after.inputs.std() / part.inputs.std()
        assert np.allclose(after.inputs, part.inputs * ratio, rtol=1e-4, atol=1e-4)
    for part, after in zip(before, _dealt(plain, transform="offset", **keys), strict=True):
        means = [samples.inputs.mean(axis=(0, 2, 3), keepdims=True) for samples in (part, after)]
        assert np.allclose(after.inputs - means[1], part.inputs - means[0], atol=1e-4)


def test_strength_scales_what_is_drawn_and_none_changes_nothing() -> None:
    plain = _images()
    before = _dealt(plain)
    for transform in FEATURES:
        without = _dealt(plain, transform=transform, feature_strength=0.0)
        assert [bits(samples) for samples in without] == [bits(samples) for samples in before]
    weak, strong = (
        _dealt(plain, transform="offset", feature_strength=strength) for strength in (0.5, 2.0)
    )
    for part, one, other in zip(before, weak, strong, strict=True):
        assert np.allclose(other.inputs - part.inputs, 4 * (one.inputs - part.inputs), atol=1e-4)


def test_devices_and_seeds_draw_for_themselves_and_again_the_same() -> None:
    plain = _images()
    for transform in FEATURES:
        shards, again = (_dealt(plain, 3, transform=transform) for _ in range(2))
        assert bits(shards) == bits(again)
        changes = [
            (after.inputs - part.inputs)[-1, 0, 0, 0]
            / part.inputs[-1, 0, 0, 0] ** (transform == "scaling")
            for seed in (1, 2)
            for part, after in zip(
                _dealt(plain, 3, seed), _dealt(plain, 3, seed, transform=transform), strict=True
            )
        ]
        assert len(np.unique(np.round(changes, 4))) == 6


def test_uint8_images_have_the_bits_of_floats() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 1, 4, 4), np.uint8)
    scale = PixelScale((0.5,), (0.25,))
    images = Samples(pixels, np.arange(20) % 2, {}, scale)
    floats = Samples(images.float_inputs(), images.targets, {}, scale)
    for transform in FEATURES:
        assert bits(_dealt(images, transform=transform)) == bits(
            _dealt(floats, transform=transform)
        )


def test_the_test_part_is_a_mixture_of_devices_and_the_same_in_every_run() -> None:
    plain = load(section(name="digits", normalize=True), None, seed=1).test.inputs
    spread = load(section(name="digits", normalize=True), None, seed=1).train.inputs.std()

    def changed(transform: str, seed: int = 1) -> Array:
        keys = {"normalize": True, "transform": transform, "feature_strength": 0.5}
        return np.asarray(load(section(name="digits", **keys), None, seed).test.inputs)

    factors = np.log(changed("scaling")[:, 0, 4, 4] / plain[:, 0, 4, 4])
    assert np.allclose([factors.mean(), factors.std()], [0, 0.5], atol=0.08)
    offsets = (changed("offset") - plain).mean(axis=(1, 2, 3))
    assert np.allclose([offsets.mean(), offsets.std()], [0, 0.5 * spread], atol=0.08)
    drifts = (changed("drift") - plain).mean(axis=(1, 2, 3))
    # The mean of t² is 1/3 for places that are even between 0 and 1.
    assert np.allclose([drifts.mean(), drifts.std()], [0, 0.5 * spread / 3**0.5], atol=0.05)
    for transform in FEATURES:
        assert np.array_equal(changed(transform, 1), changed(transform, 2))


@pytest.mark.parametrize("transform", FEATURES)
def test_tokens_are_refused(transform: str) -> None:
    tokens = Samples(np.arange(40).reshape(8, 5), np.zeros(8, np.int64))
    with pytest.raises(DataError, match=f"The transform '{transform}' needs numbers") as caught:
        _dealt(tokens, transform=transform)
    assert caught.value.code == "data.transform"


@pytest.mark.parametrize("strength", [-0.1, 11.0, float("nan"), float("inf")])
def test_a_strength_out_of_range_is_refused(strength: float) -> None:
    with pytest.raises(RecipeError, match="feature_strength"):
        load(section(name="digits", transform="offset", feature_strength=strength), None, 1)
