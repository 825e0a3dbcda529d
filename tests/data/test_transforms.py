"""Transforms: rotations, greyscale images and permuted labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.data.base.preparation import PreparationOptions, prepare
from edgefed.data.base.types import UNPREPARED, Array, Dataset
from edgefed.data.devices.partition import deal
from edgefed.data.sets.datasets import load
from edgefed.data.transforms.apply import label_orders
from edgefed.data.transforms.greyscale import LUMA, greyed
from edgefed.data.transforms.rotation import rotate, rotated_mix
from edgefed.errors import DataError
from edgefed.files.samples import Samples
from tests.data.helpers import labelled, section

MODEST = settings(max_examples=25, deadline=None)
BLACK = np.zeros(1, np.float32)


def _images(channels: int = 3, each: int = 20) -> Samples:
    rng = np.random.default_rng(0)
    inputs = rng.random((4 * each, channels, 6, 6), np.float32)
    return Samples(inputs, np.repeat(np.arange(4), each))


def _is_grey(inputs: Array) -> Array:
    """Return which images (n,) have the same value in all channels."""
    near = np.abs(inputs - inputs[:, :1]) < 1e-6
    return np.asarray(near.all(axis=(1, 2, 3)))


def _dataset(samples: Samples) -> Dataset:
    return Dataset(samples, samples, 4, samples.inputs.shape[1:])


@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_a_quarter_turn_of_a_square_keeps_every_value(quarters: int) -> None:
    images = _images(channels=1).inputs
    turned = rotate(images, np.full(len(images), quarters), 4, BLACK)
    assert np.array_equal(turned, np.rot90(images, quarters, axes=(2, 3)))


def test_an_eighth_turn_uncovers_the_corners_and_keeps_the_middle() -> None:
    image = np.ones((1, 1, 5, 5), np.float32)
    turned = rotate(image, np.array([1]), 8, np.full(1, -2, np.float32))[0, 0]
    assert turned[2, 2] == 1
    # A corner comes from 2.83 pixels off the middle, beyond the edge at 2.
    assert turned[0, 0] == pytest.approx(1 - 3 * (2 * 2**0.5 - 2))


@MODEST
@given(st.integers(1, 12), st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**32))
def test_a_rotation_stays_within_the_values_of_image_and_fill(
    angles: int, height: int, width: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    images = rng.random((5, 2, height, width), np.float32)
    turned = rotate(images, rng.integers(angles, size=5), angles, np.zeros(2, np.float32))
    assert turned.shape == images.shape
    assert turned.dtype == np.float32
    assert -1e-6 <= turned.min() <= turned.max() <= images.max() + 1e-6


def test_each_device_has_its_own_mix_of_angles() -> None:
    samples = Samples(np.zeros((400, 1, 4, 4), np.float32), np.zeros(400, np.int64))
    samples.inputs[:, 0, 0, 0] = 1  # the corner tells which quarter turn it was

    def mix(seed: int, alpha: float | None) -> list[int]:
        rng = np.random.default_rng(seed)
        turned = rotated_mix(samples, UNPREPARED, rng, angles=4, alpha=alpha).inputs[:, 0]
        return [
            int(turned[:, row, column].sum()) for row, column in ((0, 0), (3, 0), (3, 3), (0, 3))
        ]

    assert sum(mix(0, 1.0)) == 400
    assert mix(0, 1.0) != mix(1, 1.0)
    assert max(mix(0, 1e-4)) > 390
    assert max(mix(0, None)) < 140


def test_a_share_of_each_label_is_grey_and_the_others_keep_their_bits() -> None:
    samples = _images()
    result = greyed(samples, UNPREPARED, 0.95, np.random.default_rng(0))
    grey = _is_grey(result.inputs)
    assert [int(grey[samples.targets == label].sum()) for label in range(4)] == [19] * 4
    assert np.array_equal(result.inputs[~grey], samples.inputs[~grey])
    first = int(np.flatnonzero(grey)[0])
    wanted = np.tensordot(np.array(LUMA), samples.inputs[first], axes=1)
    assert np.allclose(result.inputs[first, 1], wanted, atol=1e-6)


def test_grey_is_the_same_before_and_after_normalising() -> None:
    samples = _images()
    options = PreparationOptions(normalize=True, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))

    def normal(given: Samples) -> Samples:
        return prepare(given, given, options, UNPREPARED)[0]

    preparation = prepare(samples, samples, options, UNPREPARED)[2]
    rngs = [np.random.default_rng(3) for _ in range(2)]
    before = normal(greyed(samples, UNPREPARED, 1.0, rngs[0]))
    after = greyed(normal(samples), preparation, 1.0, rngs[1])
    assert np.allclose(before.inputs, after.inputs, atol=1e-5)


def test_the_bias_of_fedma_sets_two_devices_apart() -> None:
    keys = section(partition="classes", classes_per_device=2, transform="greyscale")
    shards = deal(_dataset(_images()), keys, 2, holdout=0, seed=1)
    grey = [_is_grey(shard.train.inputs) for shard in shards]
    assert [int(each.sum()) for each in grey] == [38, 2]


def test_one_device_with_both_parts_sees_the_same_biased_images() -> None:
    dataset = _dataset(_images())
    keys = {"partition": "classes", "classes_per_device": 2, "transform": "greyscale"}
    apart = deal(dataset, section(**keys), 2, holdout=0, seed=1)
    (pooled,) = deal(dataset, section(**keys, parts_per_device=2), 1, holdout=0, seed=1)
    for field in ("inputs", "targets"):
        separate = np.concatenate([getattr(shard.train, field) for shard in apart])
        assert np.array_equal(getattr(pooled.train, field), separate)


def test_oversampling_makes_grey_and_colour_images_equally_many() -> None:
    keys = section(
        partition="classes",
        classes_per_device=2,
        transform="greyscale",
        grey_oversample=True,
        parts_per_device=2,
    )
    (shard,) = deal(_dataset(_images()), keys, 1, holdout=0, seed=1)
    inputs, targets = shard.train.inputs, shard.train.targets
    grey = _is_grey(inputs)
    for label in range(4):
        kinds = [inputs[(targets == label) & each].reshape(19, -1) for each in (grey, ~grey)]
        different = [len(np.unique(each, axis=0)) for each in kinds]
        assert sorted(different) == [1, 19], "the only one of its kind is repeated"


def test_a_label_without_any_grey_image_is_not_oversampled() -> None:
    samples = _images()
    rng = np.random.default_rng(0)
    assert len(greyed(samples, UNPREPARED, 0.0, rng, oversample=True)) == len(samples)
    assert len(greyed(samples, UNPREPARED, 1.0, rng, oversample=True)) == len(samples)


def test_oversampled_images_are_drawn_with_replacement_from_all_of_the_fewer() -> None:
    samples = _images(each=20)
    result = greyed(samples, UNPREPARED, 0.25, np.random.default_rng(0), oversample=True)
    grey = _is_grey(result.inputs)
    for label in range(4):
        own = result.inputs[(result.targets == label) & grey]
        assert len(own) == 15
        assert len(np.unique(own.reshape(15, -1), axis=0)) == 5
    assert np.array_equal(result.targets[: len(samples)], samples.targets)


def test_labels_are_permuted_by_one_of_a_few_orders() -> None:
    samples = _images()
    keys = section(partition="iid", transform="permutation", permutations=2)
    plain = deal(_dataset(samples), section(partition="iid"), 4, 0, seed=1)
    permuted = deal(_dataset(samples), keys, 4, 0, seed=1)
    orders = set()
    for before, after in zip(plain, permuted, strict=True):
        assert np.array_equal(before.train.inputs, after.train.inputs)
        pairs = set(zip(before.train.targets.tolist(), after.train.targets.tolist(), strict=True))
        assert len({new for _, new in pairs}) == len(pairs) <= 4
        orders.add(tuple(sorted(pairs)))
    assert len(orders) == 2


def test_orders_are_permutations() -> None:
    orders = label_orders(7, 4, np.random.default_rng(0))
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(7), (4, 1)))


@pytest.mark.parametrize("transform", ["rotation", "greyscale"])
def test_what_is_no_image_is_refused(transform: str) -> None:
    dataset = Dataset(labelled(np.arange(8) % 2), labelled(np.arange(2)), 2, (1,))
    with pytest.raises(DataError, match=f"The transform '{transform}' needs images") as caught:
        deal(dataset, section(partition="iid", transform=transform), 2, 0, seed=1)
    assert caught.value.code == "data.transform"


def test_the_test_part_is_transformed_too_and_the_same_in_every_run() -> None:
    plain = load(section(name="digits"), None, seed=1)
    turned, again = (
        load(section(name="digits", transform="rotation", limit=20), None, seed=seed)
        for seed in (1, 2)
    )
    assert np.array_equal(turned.test.inputs, again.test.inputs)
    same = (turned.test.inputs == plain.test.inputs).all(axis=(1, 2, 3))
    assert 0.05 < same.mean() < 0.25
    assert np.array_equal(turned.test.targets, plain.test.targets)
    permuted = load(section(name="digits", transform="permutation"), None, seed=1)
    assert np.array_equal(permuted.test.targets, plain.test.targets)
    assert "not permuted" in permuted.warnings[0]
    with pytest.raises(DataError, match="images of 3 channels"):
        load(section(name="digits", transform="greyscale"), None, seed=1)
