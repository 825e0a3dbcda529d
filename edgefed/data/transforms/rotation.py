"""Rotate each device's samples by its own mix of angles: p ~ Dir(α), one angle for each sample.

Rotated MNIST of Federated Mixture of Experts (Reisser et al., 2021): eight angles 45° apart, α = 1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from edgefed.data.base.types import Array, Indices, Preparation
from edgefed.data.transforms.images import require_images
from edgefed.files.samples import Samples

Floats = npt.NDArray[np.float64]

COLUMN = "rotation"
"""Name of the column with each sample's angle: k for k · 360° / angles."""


def rotated_mix(
    samples: Samples,
    preparation: Preparation,
    rng: np.random.Generator,
    *,
    angles: int,
    alpha: float | None,
) -> Samples:
    """Return the samples, each rotated once about its centre, with their angles as a column.

    Args:
        samples: images (n, channels, height, width).
        preparation: of the samples; corners that a rotation uncovers are black.
        rng: draws the mix and each sample's angle.
        angles: number of angles, evenly spread: angle k is k · 360° / angles.
        alpha: concentration of the mix; None for an even one, as of all devices together.

    Raises:
        DataError: the inputs are not images.
    """
    require_images(samples.inputs, "rotation")
    samples = replace(samples, inputs=samples.float_inputs())
    mix = np.full(angles, 1 / angles) if alpha is None else rng.dirichlet(np.full(angles, alpha))
    chosen = rng.choice(angles, size=len(samples), p=mix)
    fill = preparation.black(samples.inputs.shape[1])
    turned = rotate(samples.inputs, chosen, angles, fill)
    columns = {**samples.columns, COLUMN: chosen.astype(np.int64)}
    return replace(samples, inputs=turned, columns=columns)


def rotate(inputs: Array, chosen: Indices, angles: int, fill: Array) -> Array:
    """Return images turned counter-clockwise by ``chosen`` · 360° / ``angles``, bilinearly.

    A square image turned by a quarter keeps every value exactly.

    Args:
        inputs: float32 (n, channels, height, width).
        chosen: (n,) integers in [0, angles).
        angles: into how many steps the circle is divided.
        fill: (channels,) the value beyond the image.
    """
    turned = inputs.copy()
    for step in np.unique(chosen[chosen > 0]):
        rows, columns = _sources(inputs.shape[2], inputs.shape[3], int(step) / angles)
        which = np.flatnonzero(chosen == step)
        turned[which] = _sample(inputs[which], rows, columns, fill)
    return turned


def _sources(height: int, width: int, turns: float) -> tuple[Floats, Floats]:
    """Return from which row and column each pixel (height, width) of the turned image comes."""
    # Rounded, so that a quarter turn has exact zeros and hits whole pixels.
    cosine = np.round(np.cos(2 * np.pi * turns), 12)
    sine = np.round(np.sin(2 * np.pi * turns), 12)
    middle_row, middle_column = (height - 1) / 2, (width - 1) / 2
    down, right = np.meshgrid(
        np.arange(height) - middle_row, np.arange(width) - middle_column, indexing="ij"
    )
    rows: Floats = cosine * down + sine * right + middle_row
    columns: Floats = -sine * down + cosine * right + middle_column
    return rows, columns


def _sample(images: Array, rows: Floats, columns: Floats, fill: Array) -> Array:
    """Return the images' values at fractional places, bilinearly, ``fill`` beyond their edge."""
    height, width = images.shape[2:]
    # One pixel of the fill all around is all that a place beyond the edge can touch.
    padded = np.empty((*images.shape[:2], height + 2, width + 2), np.float32)
    padded[:] = fill[:, None, None]
    padded[:, :, 1:-1, 1:-1] = images
    place_row = np.clip(rows + 1, 0, height + 1)
    place_column = np.clip(columns + 1, 0, width + 1)
    top = np.minimum(place_row.astype(np.int64), height)
    left = np.minimum(place_column.astype(np.int64), width)
    low = (place_row - top).astype(np.float32)
    aside = (place_column - left).astype(np.float32)
    upper = padded[:, :, top, left] * (1 - aside) + padded[:, :, top, left + 1] * aside
    lower = padded[:, :, top + 1, left] * (1 - aside) + padded[:, :, top + 1, left + 1] * aside
    result: Array = upper * (1 - low) + lower * low
    return result
