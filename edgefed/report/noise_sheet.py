"""Images of natural noise as one picture, side by side."""

from __future__ import annotations

import io
import math

import numpy as np
from PIL import Image

from edgefed.natural_noise.types import Array

MAX_TILES = 400
"""Images that are drawn; the first."""

_SIDE = 96
"""Pixels that a small image is enlarged to, about."""

_GAP = 4


def noise_sheet(images: Array) -> bytes:
    """Return a PNG file of images (n, 3, height, width), uint8, in rows; at least one image."""
    drawn = images[:MAX_TILES].transpose(0, 2, 3, 1)
    count, height, width, channels = drawn.shape
    across = math.ceil(math.sqrt(count))
    down = math.ceil(count / across)
    scale = max(1, round(_SIDE / max(height, width)))
    tile = (height * scale + _GAP, width * scale + _GAP)
    paper = np.full((down * tile[0] + _GAP, across * tile[1] + _GAP, channels), 255, np.uint8)
    for number, image in enumerate(drawn):
        top, left = (
            _GAP + place * side for place, side in zip(divmod(number, across), tile, strict=True)
        )
        large = image.repeat(scale, axis=0).repeat(scale, axis=1)
        paper[top : top + height * scale, left : left + width * scale] = large
    file = io.BytesIO()
    Image.fromarray(paper).save(file, format="PNG", optimize=True)
    return file.getvalue()
