"""The bank of 3x3 kernels that an untrained, wavelet-initialised StyleGAN draws from.

Baradad, Wulff, Wang, Isola, Torralba: Learning to See by Looking at Noise, NeurIPS 2021, with the
values of the published code: eight edges, eight ridges, four sparse kernels, and their negatives.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image

from edgefed.natural_noise.types import Array

_ORIENTATIONS = 8


@cache
def bank() -> Array:
    """Return the kernels (40, 3, 3), float64; number k + 20 is the negative of number k."""
    edge = np.ones((11, 11), np.float32)
    edge[:, 5], edge[:, 6:] = 0, -1
    ridge = np.ones((11, 11), np.float32)
    ridge[:, 5] = -1
    positive = np.concatenate([_rotated(edge), _rotated(ridge), _sparse()])
    kernels: Array = np.concatenate([positive, -positive])
    kernels.flags.writeable = False
    return kernels


def _rotated(prototype: Array) -> Array:
    """Return a prototype's centre at eight orientations, each without its mean."""
    picture = Image.fromarray(prototype)
    degrees = [number * 180.0 / _ORIENTATIONS for number in range(_ORIENTATIONS)]
    turned = [np.asarray(picture.rotate(degree, Image.Resampling.BILINEAR)) for degree in degrees]
    centres = np.stack(turned).astype(np.float64)[:, 4:7, 4:7]
    return np.asarray(centres - centres.mean(axis=(1, 2), keepdims=True))


def _sparse() -> Array:
    """Return a point, a point in a negative surround, a plus, and a plus with negative corners."""
    point = np.zeros((3, 3))
    point[1, 1] = 1
    plus = np.array([[0.0, 1, 0], [1, 1, 1], [0, 1, 0]])
    return np.stack([point, 2 * point - 1, plus, 2 * plus - 1])
