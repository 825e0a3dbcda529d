"""Small images as enlarged tiles of a picture, in rows, with text below."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageFont

from edgefed.sharing.types import Array

MAX_TILES = 400
"""Images that a picture of a stack draws; the first."""

SIDE = 96
"""Pixels that a small image is enlarged to, about."""

LINE = 14
"""Height of a line of text in pixels."""

INK, QUIET, PAPER = (20, 20, 20), (110, 110, 110), (255, 255, 255)

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class TileGrid:
    """Where tiles are, in pixels.

    Attributes:
        tile: width and height of an enlarged image with its text.
        across, down: tiles beside and below each other.
        gap: between tiles.
        margin: left, right and below.
        top: above the first row.
    """

    tile: tuple[int, int]
    across: int
    down: int
    gap: int = 10
    margin: int = 12
    top: int = 12

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture."""
        left, top = self.corner(self.down, self.across)
        return left - self.gap + self.margin, top - self.gap + self.margin

    def corner(self, row: int, column: int) -> tuple[int, int]:
        """Return the left and the top of a tile."""
        width, height = (length + self.gap for length in self.tile)
        return self.margin + column * width, self.top + row * height


def text_font() -> Font:
    """Return the font of all text."""
    return ImageFont.load_default(size=12)


def enlargement(height: int, width: int) -> int:
    """Return the factor by which the sides of an image are enlarged."""
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


def plain_sheet(images: Array) -> bytes:
    """Return a PNG file of images (n, 3, height, width), uint8, in rows; at least one image."""
    drawn = images[:MAX_TILES].transpose(0, 2, 3, 1)
    count, height, width = drawn.shape[:3]
    across, scale = math.ceil(math.sqrt(count)), enlargement(height, width)
    tile = (width * scale, height * scale)
    grid = TileGrid(tile, across, math.ceil(count / across), gap=4, margin=4, top=4)
    paper = Image.new("RGB", grid.size, PAPER)
    for number, image in enumerate(drawn):
        paper.paste(enlarged(image, scale), grid.corner(*divmod(number, across)))
    return png(paper)
