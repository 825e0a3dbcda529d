"""Natural noise in the shape of a data set's samples.

An image is drawn at 64 pixels, or at the next size that covers the samples, and shrunk by the mean
of the area under each new pixel. One channel is the luminance; three are the colours; other numbers
of channels are filled with the colours of consecutive images. All sums are of whole numbers, so the
conversion is exact up to one rounding.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from edgefed.errors import DataError
from edgefed.natural_noise.generators import one_by_one
from edgefed.natural_noise.types import COLOURS, SIZES, Array, GeneratorName

DRAWN_AT = 64
"""Side of a drawn image, where the samples are not larger."""

MOST_CHANNELS = 64

_LUMINANCE = np.array([299, 587, 114])
"""Thousandths of red, green and blue."""


def noise_samples(
    seed: int,
    count: int,
    shape: tuple[int, ...],
    *,
    kind: GeneratorName = "oriented",
    first: int = 0,
) -> Array:
    """Return images ``first`` to ``first + count`` in a shape: uint8 (count, *shape).

    Args:
        seed: of the images.
        count: number of images.
        shape: of one sample: (channels, height, width), or (height, width) for luminance.
        kind: name of the generator.
        first: number of the first one.

    Raises:
        DataError: ``noise.shape``: samples of this shape cannot be drawn.
        UsageError: ``noise.settings``: as ``noise_images``.
    """
    channels, height, width = (1, *shape) if len(shape) == 2 else _images(shape)
    if not 1 <= channels <= MOST_CHANNELS:
        raise _refused(shape)
    per_sample = 1 if channels == 1 else -(-channels // COLOURS)
    size = _drawn_at(shape, height, width)
    images = one_by_one(seed, count * per_sample, kind=kind, size=size, first=first * per_sample)
    samples = np.empty((count, channels, height, width), np.uint8)
    for place in range(count):
        own = np.stack(list(islice(images, per_sample)))
        samples[place] = _converted(own, channels, height, width)
    return samples.reshape(count, *shape)


def _converted(images: Array, channels: int, height: int, width: int) -> Array:
    """Return uint8 images (n, 3, size, size) as one sample (channels, height, width)."""
    size = images.shape[-1]
    planes: Array = images.reshape(-1, size, size).astype(np.int64)
    scale = size * size
    if channels == 1:
        planes = np.tensordot(_LUMINANCE, planes, axes=1)[None]
        scale *= 1000
    areas = _overlaps(height, size) @ planes[:channels] @ _overlaps(width, size).T
    return np.rint(areas / scale).astype(np.uint8)


def _overlaps(after: int, before: int) -> Array:
    """Return by how much new pixels cover old ones (after, before), int64; rows sum to before."""
    new, old = np.arange(after)[:, None] * before, np.arange(before)[None] * after
    covered = np.minimum(new + before, old + after) - np.maximum(new, old)
    return np.asarray(np.maximum(covered, 0))


def _drawn_at(shape: tuple[int, ...], height: int, width: int) -> int:
    """Return the size to draw at."""
    for size in SIZES:
        if size >= max(DRAWN_AT, height, width) and min(height, width) > 0:
            return size
    raise _refused(shape)


def _images(shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise _refused(shape)
    channels, height, width = shape
    return channels, height, width


def _refused(shape: tuple[int, ...]) -> DataError:
    text = "x".join(map(str, shape)) or "a single number"
    return DataError(
        f"Natural noise cannot be drawn for samples of {text}.",
        code="noise.shape",
        hint=f"it needs images of at most {MOST_CHANNELS} channels and {SIZES[-1]} pixels a side",
    )
