"""Natural noise of the compiled kernels against numpy's, which is the fallback."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from edgefed.native.library import native
from edgefed.natural_noise.colours import as_bytes
from edgefed.natural_noise.generators import noise_images
from edgefed.natural_noise.oriented import (
    Synthesis,
    compiled_pink_means,
    compiled_synthesis,
    draw_oriented,
    synthesis,
)
from edgefed.natural_noise.oriented_draws import PINK_SIDE
from edgefed.natural_noise.pink_noise import area_means, draw_pink, pink_map
from edgefed.natural_noise.types import SIZES, Array
from edgefed.seeds import derive, generator

pytestmark = pytest.mark.skipif(
    native().library is None, reason=f"without compiled kernels: {native().reason}"
)


def images(draw: Synthesis, count: int, size: int) -> Array:
    """The first images of seed 5."""
    own = derive(5, "natural-noise", "oriented", size)
    return np.stack([as_bytes(each) for each in draw_oriented(own, 0, count, size, draw)])


@pytest.mark.parametrize("size", (min(SIZES), max(SIZES)))
def test_images_are_those_of_numpy_but_for_a_rounding(size: int) -> None:
    by_numpy, by_kernels = (images(draw, 2, size) for draw in (synthesis, compiled_synthesis))
    apart = by_numpy.astype(int) - by_kernels.astype(int)
    assert np.abs(apart).max() <= 1
    assert (apart != 0).mean() < 0.001


DRAWN = """
import sys
from edgefed.natural_noise.oriented import draw_oriented
sys.stdout.buffer.write(b"".join(each.tobytes() for each in draw_oriented(5, 0, 2, 32)))
"""


def test_the_kernels_draw_unless_they_are_off() -> None:
    """Before they are bytes, images of both differ."""
    by_numpy, by_kernels, usual = (
        b"".join(each.tobytes() for each in draw_oriented(5, 0, 2, 32, *how))
        for how in ((synthesis,), (compiled_synthesis,), ())
    )
    environment = {**os.environ, "EDGEFED_NATIVE": "0"}
    command = [sys.executable, "-c", DRAWN]
    told = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert (usual, told.stdout) == (by_kernels, by_numpy)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 1.5])
def test_pink_maps_are_those_of_numpy(alpha: float) -> None:
    drawn = replace(draw_pink(generator(3, "pink"), PINK_SIDE, envelope=True), alpha=alpha)
    expected = area_means(pink_map(drawn), 256, 4)
    for side in (4, 64, 256):
        assert np.abs(compiled_pink_means(drawn, side) - expected[side]).max() < 1e-5


def test_threads_draw_the_same_bits_at_once() -> None:
    whole = noise_images(5, 24, size=32)
    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(lambda first: noise_images(5, 6, size=32, first=first), range(0, 24, 6))
        assert np.array_equal(np.concatenate(list(parts)), whole)
