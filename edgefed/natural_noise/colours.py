"""Colours of natural images: each channel gets a random mean and standard deviation.

The distributions are those of the published code of Baradad et al., NeurIPS 2021. As there, a drawn
standard deviation may be negative, which inverts a channel, and so may a mean.
"""

from __future__ import annotations

import numpy as np

from edgefed.natural_noise.types import COLOURS, Array

_MEANS = np.array([(0.483, 0.145), (0.455, 0.142), (0.401, 0.161)])
_DEVIATIONS = np.array([(0.219, 0.063), (0.213, 0.062), (0.213, 0.069)])
"""For red, green and blue: the mean of the draws, and their standard deviation."""


def draw_colours(generator: np.random.Generator) -> Array:
    """Return means and standard deviations (2, 3) of an image's channels."""
    drawn = generator.standard_normal((2, COLOURS))
    return np.stack(
        [_MEANS[:, 0] + _MEANS[:, 1] * drawn[0], _DEVIATIONS[:, 0] + _DEVIATIONS[:, 1] * drawn[1]]
    )


def coloured(image: Array, colours: Array) -> Array:
    """Return an image (3, height, width) with these means and standard deviations, unclipped."""
    flat = image.reshape(COLOURS, -1).astype(np.float64)
    flat -= flat.mean(axis=1, keepdims=True)
    flat *= (colours[1] / flat.std(axis=1))[:, None]
    flat += colours[0][:, None]
    return flat.reshape(image.shape)


def as_bytes(image: Array) -> Array:
    """Return an image of values from 0 to 1 as uint8; values are clipped, then truncated."""
    return np.asarray(np.clip(image, 0, 1) * 255).astype(np.uint8)
