"""The resize inside exported models is Pillow's, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from edgefed.prediction.resizing import resized

SIZES = [(1, 1), (3, 200), (20, 10), (33, 64), (65, 130), (96, 95), (300, 201), (640, 480)]


@pytest.mark.parametrize("target", [(32, 32), (224, 224), (17, 40)])
@pytest.mark.parametrize("size", SIZES)
def test_a_resized_image_has_pillows_pixels(size: tuple[int, int], target: tuple[int, int]) -> None:
    height, width = target
    pixels = np.random.default_rng(sum(size)).integers(0, 256, (*size, 3), np.uint8)
    wanted = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
    found = resized(torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None], height, width)
    assert np.array_equal(found[0].permute(1, 2, 0).numpy(), np.asarray(wanted))


def test_white_stays_white() -> None:
    white = torch.full((1, 1, 77, 51), 255, dtype=torch.uint8)
    assert torch.equal(
        resized(white, 32, 32), torch.full((1, 1, 32, 32), 255.0, dtype=torch.float64)
    )
