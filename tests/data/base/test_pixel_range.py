"""Inputs as pixels and back, whatever was done to them when they were read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefed.data.base.pixel_range import from_pixels, to_pixels
from edgefed.data.base.types import UNPREPARED, Array, Preparation
from edgefed.data.devices.sources import load_device
from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.sharing.label_mixes import quantised
from tests.data.helpers import write_npz

THREE = Preparation(mean=(0.5, 0.25, 0.0), std=(0.5, 2.0, 0.125))


def samples(inputs: Array) -> Samples:
    return Samples(inputs, np.arange(len(inputs)) % 4)


def colours(count: int = 12) -> Array:
    return np.random.default_rng(0).integers(0, 256, (count, 8, 7, 3), np.uint8)


def test_each_channel_has_its_own_moments() -> None:
    inputs = np.array([-1.0, 1, 8], np.float32).reshape(1, 3, 1, 1)
    made = to_pixels(samples(inputs), Preparation((0.5, -1.5, 0), (0.5, 2.0, 0.125)))
    assert made.inputs.ravel().tolist() == [0.0, 0.5, 1.0]
    assert inputs.ravel().tolist() == [-1, 1, 8]


def test_one_moment_counts_for_all_channels_and_for_images_without() -> None:
    one = Preparation((0.5,), (0.25,))
    for shape in ((1, 3, 2, 2), (1, 2, 2)):
        assert (to_pixels(samples(np.ones(shape, np.float32)), one).inputs == 0.75).all()
        assert (from_pixels(np.full(shape, 51, np.uint8), one) == np.float32(-1.2)).all()


@pytest.mark.parametrize("source", ["", "?normalize=true&mean=0.5,0.4,0.3&std=0.2,0.3,0.1"])
def test_a_files_pixels_come_back_and_give_the_same_inputs_bit_for_bit(
    tmp_path: Path, source: str
) -> None:
    pixels = colours()
    file = write_npz(tmp_path / "a.npz", x=pixels, y=np.arange(12) % 4)
    read = load_device(f"npz:{file}{source}", 0.0)
    made = to_pixels(read.train, read.preparation)
    assert made.inputs.dtype == np.float32
    assert 0 <= made.inputs.min() <= made.inputs.max() <= 1
    assert made.targets is read.train.targets
    bytes_ = quantised(made.inputs)
    assert np.array_equal(bytes_, np.moveaxis(pixels, -1, 1))
    again = from_pixels(bytes_, read.preparation)
    assert again.dtype == np.float32
    assert again.tobytes() == read.train.inputs.tobytes()


def test_bytes_are_pixels_already() -> None:
    pixels = np.moveaxis(colours(), -1, 1)
    made = to_pixels(samples(pixels), UNPREPARED).inputs
    assert made.dtype == np.float32
    assert np.array_equal(made, from_pixels(pixels, UNPREPARED))


def test_only_rounding_is_clipped() -> None:
    ends = np.array([-0.0009, 1.0009], np.float32).reshape(2, 1, 1)
    assert to_pixels(samples(ends), UNPREPARED).inputs.ravel().tolist() == [0, 1]
    for value in (-0.0011, 1.0011, 255.0, float("nan")):
        with pytest.raises(DataError, match="range from") as raised:
            to_pixels(samples(np.full((2, 1, 1), value, np.float32)), UNPREPARED)
        assert raised.value.code == "mix.pixels"
    # Standardised pixels whose preparation is unknown, taken for pixels.
    with pytest.raises(DataError, match="range from -1 to"):
        to_pixels(samples(from_pixels(np.zeros((1, 3, 1, 1), np.uint8), THREE)), UNPREPARED)


def test_what_is_no_image_is_refused_with_a_reason() -> None:
    refused: dict[str, Array] = {
        "tokens of a text": np.zeros((4, 80), np.int64),
        "shape 30 is no image": np.zeros((4, 30), np.float32),
        "shape 1x2x4x4 is no image": np.zeros((4, 1, 2, 4, 4), np.float32),
    }
    for reason, inputs in refused.items():
        with pytest.raises(DataError, match=reason) as raised:
            to_pixels(samples(inputs), UNPREPARED)
        assert raised.value.code == "mix.pixels"


def test_no_samples_are_no_pixels() -> None:
    assert to_pixels(samples(np.zeros((0, 3, 8, 8), np.float32)), THREE).inputs.shape[0] == 0
