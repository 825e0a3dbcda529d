"""Averaged images as one labelled contact sheet.

It corresponds to figure 3 of Yoon, Shin, Hwang, Yang: FedMix, ICLR 2021, which shows how little of
a sample remains in an average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from edgefed.errors import DataError
from edgefed.report.means import Means, main_labels, numbers_in_words
from edgefed.report.tiles import (
    INK,
    LINE,
    PAPER,
    QUIET,
    SIDE,
    Font,
    enlarged,
    enlargement,
    png,
    text_font,
)
from edgefed.sharing.types import Array
from edgefed.units import counted

MAX_TILES = 400
"""Entries that are drawn; the first."""

_GAP, _MARGIN = 10, 12
_TOP = _MARGIN + 2 * LINE


@dataclass(frozen=True)
class _Grid:
    """Where things go, in pixels.

    Attributes:
        scale: sides of an image are enlarged by this.
        height: of an enlarged image.
        tile: width and height of an image with its caption.
        across, down: tiles beside and below each other.
    """

    scale: int
    height: int
    tile: tuple[int, int]
    across: int
    down: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture."""
        width, height = (length + _GAP for length in self.tile)
        return (
            2 * _MARGIN + self.across * width - _GAP,
            _TOP + self.down * height - _GAP + _MARGIN,
        )

    def corner(self, number: int) -> tuple[int, int]:
        """Return the left and the top of a tile."""
        row, column = divmod(number, self.across)
        return (
            _MARGIN + column * (self.tile[0] + _GAP),
            _TOP + row * (self.tile[1] + _GAP),
        )


def sheet(means: Means) -> bytes:
    """Return a PNG file of a run's averaged images, each with its number and all its labels.

    All are scaled alike, the smallest value of the stack to black and the largest to white.

    Raises:
        DataError: ``means.shape``: they are no images.
    """
    if means.split:
        raise _no_images("they are taken inside the model (split)")
    images = _images(means.entries.inputs)[:MAX_TILES]
    font = text_font()
    height, width = images.shape[1:3]
    captions = captions_of(means, len(images), max(SIDE, width * enlargement(height, width)), font)
    grid = _grid(len(images), height, width, max(map(len, captions)))
    title = _title(means, len(images))
    across = max(grid.size[0], math.ceil(font.getlength(title)) + 2 * _MARGIN)
    paper = Image.new("RGB", (across, grid.size[1]), PAPER)
    pen = ImageDraw.Draw(paper)
    pen.text((_MARGIN, _MARGIN), title, fill=INK, font=font)
    for number, image in enumerate(images):
        left, top = grid.corner(number)
        paper.paste(enlarged(image, grid.scale), (left, top))
        below = top + grid.height + 2
        for place, line in enumerate(captions[number]):
            ink = INK if place else QUIET
            pen.text((left, below + place * LINE), line, fill=ink, font=font)
    return png(paper)


def _grid(count: int, height: int, width: int, lines: int) -> _Grid:
    """Return the grid for so many images with captions of so many lines, about square."""
    scale = enlargement(height, width)
    across = math.ceil(math.sqrt(count))
    tile = (max(SIDE, width * scale), height * scale + lines * LINE + 4)
    return _Grid(scale, height * scale, tile, across, math.ceil(count / across))


def captions_of(means: Means, count: int, width: int, font: Font) -> list[list[str]]:
    """Return the lines below each image: its number, and its labels or its first number."""
    captions = []
    for number, target in enumerate(means.entries.targets[:count]):
        words = _labels(target) if means.has_shares else [numbers_in_words(target, 1)]
        captions.append([f"entry {number}", *_wrapped(words, width, font)])
    return captions


def _title(means: Means, drawn: int) -> str:
    count = len(means.entries)
    told = counted(count, "entry", "entries")
    cut = f", the first {drawn}" if drawn < count else ""
    return f"averaged data of {means.run}: {told}{cut}"


def _labels(target: Array) -> list[str]:
    """Return every label of an average with its share, the largest first."""
    shares = main_labels(target, len(target))
    return [f"{label}: {share * 100:.0f} %" for label, share in shares]


def _wrapped(words: list[str], width: int, font: Font) -> list[str]:
    """Return words as lines that are no wider than a tile, each with at least one word."""
    lines: list[str] = []
    for word in words:
        longer = f"{lines[-1]}  {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _images(inputs: Array) -> Array:
    """Return uint8 images (entries, height, width, 3) of averaged inputs.

    Args:
        inputs: float32 (entries, height, width), or with 1 or 3 channels before the height.
    """
    shape = inputs.shape[1:]
    if len(shape) == 2:
        planes = inputs[:, None]
    elif len(shape) == 3 and shape[0] in (1, 3):
        planes = inputs
    else:
        told = "x".join(map(str, shape)) or "single numbers"
        raise _no_images(f"an entry is {told}")
    low, high = float(planes.min()), float(planes.max())
    levels = np.rint((planes - low) * (255 / (high - low or 1.0))).astype(np.uint8)
    colours = np.broadcast_to(levels, (len(levels), 3, *levels.shape[2:]))
    return np.ascontiguousarray(colours.transpose(0, 2, 3, 1))


def _no_images(why: str) -> DataError:
    return DataError(
        f"These averaged data are not images: {why}.",
        code="means.shape",
        hint="omit --png to list their labels",
    )
