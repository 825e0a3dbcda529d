"""The picture of mixes: what stands where, and what cannot be drawn."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.report.mix_sheet import MAX_PARTNERS, mix_sheet, scale_in_words
from edgefed.sharing.label_mixes import Ingredients
from edgefed.sharing.mix_preview import MixPreview
from edgefed.sharing.types import Array


def preview(inputs: Array, mixes: int = 1, width: int = 3) -> MixPreview:
    """Mixes of sample 0 with the following ones, the last of which weighs most."""
    weights = np.array([0.5, *np.arange(1, width)])
    weights[1:] *= 0.5 / weights[1:].sum()
    made = Ingredients(
        np.zeros(mixes, np.int64),
        np.tile(np.arange(1, width), (mixes, 1)),
        np.tile(weights, (mixes, 1)),
    )
    samples = Samples(inputs, np.arange(len(inputs)))
    return MixPreview(samples, made, {0.0: inputs[:mixes], 0.25: inputs[-mixes:]})


def drawn(file: bytes) -> Array:
    with Image.open(io.BytesIO(file)) as picture:
        return np.asarray(picture)


def flat(count: int, shape: tuple[int, ...]) -> Array:
    """Images of one level each: 0, 10, 20, …"""
    levels = np.arange(count, dtype=np.uint8) * 10
    return np.broadcast_to(levels.reshape(-1, *[1] * len(shape)), (count, *shape)).copy()


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (3, 8, 8), (4, 8, 8)])
def test_the_dominant_sample_comes_first_and_the_others_by_weight(shape: tuple[int, ...]) -> None:
    picture = drawn(mix_sheet(preview(flat(3, shape))))
    assert picture.shape == (12 + 18 + 96 + 28 + 12, 2 * 12 + 5 * 96 + 4 * 10, 3)
    levels = [picture[30:126, 12 + 106 * column] for column in range(5)]
    assert [np.unique(level).tolist() for level in levels] == [[0], [20], [10], [0], [20]]


def test_rows_are_mixes() -> None:
    picture = drawn(mix_sheet(preview(flat(5, (8, 8)), mixes=2)))
    assert picture.shape[0] == 12 + 18 + 2 * (96 + 28) + 10 + 12
    below = picture[30 + 134 : 126 + 134]
    assert np.unique(below[:, 12 + 106 * 3 : 12 + 106 * 3 + 96]).tolist() == [10]


def test_of_many_samples_the_heaviest_are_drawn() -> None:
    picture = drawn(mix_sheet(preview(flat(20, (8, 8)), width=20)))
    columns = 1 + MAX_PARTNERS + 2
    assert picture.shape[1] == 2 * 12 + columns * 96 + (columns - 1) * 10
    shown = [int(picture[60, 12 + 106 * column, 0]) for column in range(1 + MAX_PARTNERS)]
    assert shown == [0, 190, 180, 170, 160, 150, 140]


def test_names_are_written_and_cut_to_the_width_of_an_image() -> None:
    inputs = flat(3, (8, 8))
    plain, named = (drawn(mix_sheet(preview(inputs), names)) for names in ((), ("a", "b", "c")))
    assert not np.array_equal(plain, named)
    numbered = drawn(mix_sheet(preview(inputs), ("0", "", "2")))
    assert np.array_equal(plain, numbered)
    long = drawn(mix_sheet(preview(inputs), ("a very long name of a class" * 9, "b", "c")))
    assert long.shape == named.shape
    between = long[:, 12 + 96 : 12 + 106]
    assert (between == 255).all()


def test_images_of_other_channels_cannot_be_drawn() -> None:
    with pytest.raises(DataError, match="Images of 2 channels") as raised:
        mix_sheet(preview(flat(3, (2, 8, 8))))
    assert raised.value.code == "mix.pixels"


@pytest.mark.parametrize(
    ("scale", "words"), [(0.0, "0"), (16 / 255, "16/255"), (0.05, "0.05"), (1e-9, "1e-09")]
)
def test_a_scale_in_words(scale: float, words: str) -> None:
    assert scale_in_words(scale) == words
