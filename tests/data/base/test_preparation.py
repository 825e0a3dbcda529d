"""Normalisation and declared augmentation, in recipes, sources and shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.config.loading.validate import check_section
from edgefed.data.base.preparation import measured
from edgefed.data.base.types import UNPREPARED, Preparation
from edgefed.data.devices.partition import deal
from edgefed.data.devices.shard_files import read_shard, write_shard
from edgefed.data.devices.sources import load_device
from edgefed.data.sets.datasets import load
from edgefed.data.sets.vision import VisionOptions
from edgefed.errors import DataError, RecipeError
from tests.data.helpers import section, write_mnist, write_npz


def _colours(folder: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), np.uint8)
    return write_npz(folder / "a.npz", x=pixels, y=np.arange(40) % 4)


def test_a_recipe_names_moments_as_an_array() -> None:
    made = check_section(VisionOptions, {"mean": [0.5, 0.4], "std": [1, 2]}, "data")
    assert (made.mean, made.std) == ((0.5, 0.4), (1.0, 2.0))
    with pytest.raises(RecipeError, match=r"data\.mean"):
        check_section(VisionOptions, {"mean": ["half"]}, "data")


def test_by_default_nothing_is_done(tmp_path: Path) -> None:
    _colours(tmp_path)
    dataset = load(section(name="npz", path="a.npz"), tmp_path, seed=1)
    assert dataset.preparation == UNPREPARED
    assert 0 <= dataset.train.inputs.min() < dataset.train.inputs.max() == 1


def test_measured_moments_make_the_training_part_standard(tmp_path: Path) -> None:
    _colours(tmp_path)
    dataset = load(section(name="npz", path="a.npz", normalize=True), tmp_path, seed=1)
    inputs = dataset.train.inputs
    assert inputs.dtype == np.float32
    assert np.allclose(inputs.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    assert np.allclose(inputs.std(axis=(0, 2, 3)), 1, atol=1e-5)
    assert len(dataset.preparation.mean) == len(dataset.preparation.std) == 3
    assert not np.allclose(dataset.test.inputs.mean(axis=(0, 2, 3)), 0, atol=1e-5)


def test_stated_moments_count_and_published_ones_come_before_measured(tmp_path: Path) -> None:
    write_mnist(tmp_path, 20)
    plain = load(section(name="mnist"), tmp_path, seed=1).train.inputs
    published = load(section(name="mnist", normalize=True), tmp_path, seed=1)
    assert (published.preparation.mean, published.preparation.std) == ((0.1307,), (0.3081,))
    assert np.allclose(published.train.inputs, (plain - 0.1307) / 0.3081, atol=1e-5)
    stated = load(section(name="mnist", normalize=True, mean=[0.5], std=[2]), tmp_path, seed=1)
    assert np.allclose(stated.train.inputs, (plain - 0.5) / 2, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 2500), st.floats(-1e3, 1e3), st.integers(0, 2**32))
def test_moments_are_measured_in_double_precision(
    channels: int, samples: int, offset: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    inputs = (offset + rng.normal(size=(samples, channels, 2, 3))).astype(np.float32)
    moments = measured(inputs)
    wide = inputs.astype(np.float64)
    assert np.allclose(moments.mean, wide.mean(axis=(0, 2, 3)))
    assert np.allclose(moments.std, wide.std(axis=(0, 2, 3)))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"mean": [0.5], "std": [1]}, "`normalize` is not set"),
        ({"normalize": True, "mean": [0.5]}, "one number each for every channel"),
        ({"normalize": True, "mean": [0, 0], "std": [1, 1]}, "have 3 channels, not 2"),
        ({"normalize": True, "mean": [0], "std": [0]}, "'std.0' cannot be used"),
        ({"crop": 8}, "images of 8x8 are too small"),
        ({"crop": 65}, "'crop' cannot be used"),
    ],
)
def test_what_cannot_be_done_is_explained(
    tmp_path: Path, keys: dict[str, object], message: str
) -> None:
    _colours(tmp_path)
    with pytest.raises(RecipeError) as caught:
        load(section(name="npz", path="a.npz", **keys), tmp_path, seed=1)
    assert message in caught.value.message
    assert caught.value.hint


def test_inputs_that_are_no_images_have_one_channel_and_no_crops(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(3, 2, (50, 5)).astype(np.float32)
    write_npz(tmp_path / "a.npz", x=x, y=np.arange(50) % 2)
    keys = {"name": "npz", "path": "a.npz"}
    dataset = load(section(**keys, normalize=True), tmp_path, seed=1)
    assert len(dataset.preparation.mean) == 1
    assert abs(float(dataset.train.inputs.mean())) < 1e-5
    with pytest.raises(RecipeError, match="the inputs are no images"):
        load(section(**keys, flip=True), tmp_path, seed=1)
    write_npz(tmp_path / "a.npz", x=np.ones((5, 2)), y=np.zeros(5, int))
    with pytest.raises(RecipeError, match="all the same"):
        load(section(**keys, normalize=True), tmp_path, seed=1)


def test_a_shard_tells_the_device_what_was_done_and_what_to_do(tmp_path: Path) -> None:
    _colours(tmp_path)
    keys = section(name="npz", path="a.npz", normalize=True, crop=2, crop_fill="zeros", flip=True)
    dataset = load(keys, tmp_path, seed=1)
    shard = deal(dataset, keys, 2, 0.25, seed=1)[0]
    path = tmp_path / "shard.npz"
    write_shard(path, shard)
    device = load_device(f"npz:{path}", holdout=0.1)
    assert device.preparation == shard.preparation == read_shard(path).preparation
    assert (device.preparation.crop, device.preparation.crop_fill) == (2, "zeros")
    assert device.preparation.flip
    assert device.train.inputs.tobytes() == shard.train.inputs.tobytes()
    with pytest.raises(RecipeError, match="normalised when it was written"):
        load_device(f"npz:{path}?normalize=true&mean=0&std=1", holdout=0.1)


def test_a_shard_without_preparation_says_nothing_of_it(tmp_path: Path) -> None:
    _colours(tmp_path)
    dataset = load(section(name="npz", path="a.npz"), tmp_path, seed=1)
    write_shard(tmp_path / "shard.npz", deal(dataset, section(), 2, 0, seed=1)[0])
    with np.load(tmp_path / "shard.npz", allow_pickle=False) as file:
        assert set(file.files) == {"x_train", "y_train", "x_test", "y_test", "classes"}


def test_a_device_prepares_its_own_data_by_what_its_source_says(tmp_path: Path) -> None:
    path = _colours(tmp_path)
    plain = load_device(f"npz:{path}", holdout=0.1)
    stated = "mean=0.5,0.4,0.3&std=0.2,0.2,0.1"
    device = load_device(f"npz:{path}?normalize=true&{stated}&crop=1&flip=true", holdout=0.1)
    assert device.warnings[-1] == f"crop and flip of {path} do nothing: each run says its own"
    assert device.preparation == Preparation((0.5, 0.4, 0.3), (0.2, 0.2, 0.1), 1, "reflect", True)
    wanted = (plain.train.inputs[:, 2] - 0.3) / 0.1
    assert np.allclose(device.train.inputs[:, 2], wanted, atol=1e-5)
    with pytest.raises(RecipeError, match="which all devices must share"):
        load_device(f"npz:{path}?normalize=true", holdout=0.1)
    with pytest.raises(RecipeError, match=r"'mean.0' cannot be used"):
        load_device(f"npz:{path}?normalize=true&mean=dark&std=1", holdout=0.1)


def test_a_preparation_that_is_none_is_refused(tmp_path: Path) -> None:
    path = write_npz(
        tmp_path / "a.npz", x=np.zeros((2, 2)), y=np.arange(2), preparation=np.array("[1]")
    )
    with pytest.raises(DataError, match="`preparation` that cannot be read"):
        load_device(f"npz:{path}", holdout=0.1)
