"""Inputs are taken back to the pixels that they were scaled from."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgefed.files.samples import UNSCALED, PixelScale, Samples
from edgefed.learn.samples.pixel_scaling import PixelScaling
from edgefed.learn.samples.sample_cache import ImageReader

SCALES = st.one_of(
    st.just(UNSCALED),
    st.tuples(st.floats(0, 1), st.floats(0.05, 2)).map(
        lambda each: PixelScale((each[0],), (each[1],))
    ),
    st.tuples(*[st.tuples(st.floats(0, 1), st.floats(0.05, 2))] * 3).map(
        lambda each: PixelScale(tuple(m for m, _ in each), tuple(s for _, s in each))
    ),
)


def scaling(scale: PixelScale, kind: torch.dtype = torch.float32) -> PixelScaling:
    cpu = torch.device("cpu")
    reader = ImageReader(Samples(np.zeros((1, 3, 5, 4)), np.zeros(1), scale=scale), kind, cpu)
    return PixelScaling(scale, reader.scaled, kind, cpu)


@given(images=hnp.arrays(np.uint8, (2, 3, 5, 4)), scale=SCALES, wide=st.booleans())
@settings(max_examples=50, deadline=None)
def test_pixels_come_back_exactly(
    images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], scale: PixelScale, wide: bool
) -> None:
    both = scaling(scale, torch.float64 if wide else torch.float32)
    inputs = torch.from_numpy(scale.inputs(images)).to(torch.float64 if wide else torch.float32)
    assert np.array_equal(both.pixels(inputs).numpy(), images)
    assert torch.allclose(both.inputs(torch.from_numpy(images)), inputs, atol=1e-5)


def test_what_is_no_pixel_becomes_the_nearest_one() -> None:
    inputs = torch.tensor([-3.0, -0.001, 0.5, 1.0, 1.2, 300.0]).reshape(1, 1, 2, 3)
    assert scaling(UNSCALED).pixels(inputs).flatten().tolist() == [0, 0, 128, 255, 255, 255]


def test_the_neutral_pixel_is_the_mean() -> None:
    assert scaling(UNSCALED).neutral.tolist() == [[[0]]]
    three = scaling(PixelScale((0.0, 0.5, 1.0), (1.0, 2.0, 3.0)))
    assert three.neutral.flatten().tolist() == [0, 128, 255]
    assert float(three.inputs(three.neutral.expand(1, 3, 5, 4)).abs().max()) < 0.002
