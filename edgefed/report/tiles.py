"""Small images as enlarged tiles of a picture, with text below."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageFont

from edgefed.sharing.types import Array

SIDE = 96
"""Pixels that a small image is enlarged to, about."""

LINE = 14
"""Height of a line of text in pixels."""

INK, QUIET, PAPER = (20, 20, 20), (110, 110, 110), (255, 255, 255)

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def text_font() -> Font:
    """Return the font of all text."""
    return ImageFont.load_default(size=12)


def enlargement(height: int, width: int) -> int:
    """Return by what the sides of an image are enlarged."""
    return max(1, round(SIDE / max(height, width)))


def enlarged(image: Array, scale: int) -> Image.Image:
    """Return an image, uint8 (height, width, 3), whose pixels are squares of ``scale``."""
    picture = Image.fromarray(np.ascontiguousarray(image))
    size = (picture.width * scale, picture.height * scale)
    return picture.resize(size, Image.Resampling.NEAREST)


def png(picture: Image.Image) -> bytes:
    """Return a picture as a PNG file."""
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    return file.getvalue()
