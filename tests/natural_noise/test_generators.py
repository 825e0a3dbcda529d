"""Images of a seed are the same whatever is drawn with them, and in whatever process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest

from edgefed.errors import DataError, UsageError
from edgefed.natural_noise.generators import noise_images
from edgefed.natural_noise.shapes import noise_samples
from edgefed.natural_noise.types import Array, GeneratorName

KINDS: tuple[GeneratorName, ...] = get_args(GeneratorName)


@pytest.fixture(scope="module")
def many() -> dict[GeneratorName, Array]:
    """The first images of a seed, of each generator."""
    return {kind: noise_images(5, 20, kind=kind, size=32) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_does_not_depend_on_what_is_drawn_with_it(
    many: dict[GeneratorName, Array], kind: GeneratorName
) -> None:
    whole = many[kind]
    assert whole.dtype == np.uint8
    assert whole.shape == (20, 3, 32, 32)
    for first, count in [(0, 1), (0, 7), (7, 13), (15, 3), (19, 1)]:
        part = noise_images(5, count, kind=kind, size=32, first=first)
        assert np.array_equal(part, whole[first : first + count])
    assert len(np.unique(whole.reshape(20, -1), axis=0)) == 20


def test_an_image_after_a_new_instance_does_not_depend_on_what_is_drawn_with_it() -> None:
    across = noise_images(5, 4, size=32, first=398)
    assert np.array_equal(across[2:], noise_images(5, 2, size=32, first=400))


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_differ(many: dict[GeneratorName, Array], kind: GeneratorName) -> None:
    assert not np.array_equal(noise_images(6, 1, kind=kind, size=32), many[kind][:1])


_DRAWN = """
import hashlib, sys
from edgefed.natural_noise.generators import noise_images
for kind in sys.argv[1:]:
    images = noise_images(5, 3, kind=kind, size=64, first=17)
    print(hashlib.sha256(images.tobytes()).hexdigest())
"""


def test_another_process_with_more_threads_draws_the_same_bits() -> None:
    whole = (noise_images(5, 20, kind=kind, size=64)[17:] for kind in KINDS)
    expected = [hashlib.sha256(images.tobytes()).hexdigest() for images in whole]
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, "4")}
    words = [sys.executable, "-c", _DRAWN, *KINDS]
    told = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == expected


def spectrum_slope(images: Array) -> float:
    """The exponent of the power's fall along the frequencies of a row."""
    side = images.shape[-1]
    planes = images.astype(float).reshape(-1, side, side)
    planes -= planes.mean(axis=(1, 2), keepdims=True)
    power = (np.abs(np.fft.fft2(planes)) ** 2).mean(axis=0)[0, 1 : side // 4]
    return float(np.polyfit(np.log(np.arange(1, side // 4)), np.log(power), 1)[0])


def test_the_generators_have_their_spectra() -> None:
    slopes = {kind: spectrum_slope(noise_images(3, 20, kind=kind)) for kind in KINDS}
    assert abs(slopes["white"]) < 0.2
    assert -2.6 < slopes["spectrum"] < -1
    assert slopes["oriented"] < -1


def test_oriented_noise_has_visible_borders_and_the_controls_have_none() -> None:
    def ratio(kind: GeneratorName) -> float:
        images = noise_images(3, 40, kind=kind).astype(float)
        steps = np.abs(np.diff(images, axis=-1)).mean(axis=(0, 1, 2))
        return float(steps[[0, -1]].mean() / steps[20:44].mean())

    assert ratio("oriented") > 1.3
    for kind in ("spectrum", "white"):
        assert ratio(kind) == pytest.approx(1, abs=0.25)


def test_halves_of_the_size_are_means_of_four_pixels() -> None:
    images = noise_images(5, 3)
    means = images.reshape(3, 3, 32, 2, 32, 2).astype(float).mean(axis=(3, 5))
    assert np.array_equal(noise_samples(5, 3, (3, 32, 32)), np.rint(means).astype(np.uint8))


def test_a_single_channel_is_the_luminance_of_the_area_under_each_pixel() -> None:
    images = noise_images(5, 2).astype(float)
    luminance = np.tensordot([0.299, 0.587, 0.114], images, axes=(0, 1))
    fine = luminance.repeat(7, axis=1).repeat(7, axis=2)  # 448 = 28 · 16
    means = fine.reshape(2, 28, 16, 28, 16).mean(axis=(2, 4))
    samples = noise_samples(5, 2, (1, 28, 28))
    assert np.abs(samples[:, 0] - means).max() <= 0.5 + 1e-9
    assert np.array_equal(noise_samples(5, 2, (28, 28)), samples[:, 0])


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 20, 30), (5, 32, 32), (3, 70, 64), (3, 64, 64)])
def test_a_sample_of_any_image_shape_does_not_depend_on_the_others(shape: tuple[int, ...]) -> None:
    samples = noise_samples(5, 3, shape)
    assert samples.dtype == np.uint8
    assert samples.shape == (3, *shape)
    assert np.array_equal(noise_samples(5, 1, shape, first=2), samples[2:])
    planes = samples.reshape(3 * shape[0], -1)
    assert len(np.unique(planes, axis=0)) == len(planes)


@pytest.mark.parametrize(
    "shape", [(), (7,), (3, 0, 8), (0, 8, 8), (65, 8, 8), (3, 257, 8), (1, 1, 8, 8), (3, -1, 8)]
)
def test_samples_that_are_no_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError) as caught:
        noise_samples(1, 1, shape)
    assert caught.value.code == "noise.shape"


def test_what_cannot_be_drawn_is_refused() -> None:
    for wrong in (
        {"size": 48},
        {"kind": "pink"},
        {"first": -1},
        {"count": -1},
        {"first": 2**32},
        {"seed": -1},
        {"seed": 2**63},
    ):
        settings = {"seed": 1, "count": 1, **wrong}
        with pytest.raises(UsageError) as caught:
            noise_images(**settings)  # type: ignore[arg-type]
        assert caught.value.code == "noise.settings", wrong
    assert noise_images(1, 0).shape == (0, 3, 64, 64)
