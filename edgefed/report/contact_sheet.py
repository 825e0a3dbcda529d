"""Averaged images as one labelled contact sheet.

It corresponds to figure 3 of Yoon, Shin, Hwang, Yang: FedMix, ICLR 2021, which shows how little of
a sample remains in an average.
"""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageDraw

from edgefed.errors import DataError
from edgefed.report.means import Means, main_labels, numbers_in_words
from edgefed.report.tiles import (
    INK,
    LINE,
    MAX_TILES,
    PAPER,
    QUIET,
    SIDE,
    Font,
    TileGrid,
    enlarged,
    enlargement,
    png,
    text_font,
)
from edgefed.sharing.types import Array
from edgefed.terminal.units import counted

_TOP = 12 + 2 * LINE


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
    scale = enlargement(height, width)
    wide, high = max(SIDE, width * scale), height * scale
    captions = captions_of(means, len(images), wide, font)
    across = math.ceil(math.sqrt(len(images)))
    tile = (wide, high + max(map(len, captions)) * LINE + 4)
    grid = TileGrid(tile, across, math.ceil(len(images) / across), top=_TOP)
    title = _title(means, len(images))
    room = math.ceil(font.getlength(title)) + 2 * grid.margin
    paper = Image.new("RGB", (max(grid.size[0], room), grid.size[1]), PAPER)
    pen = ImageDraw.Draw(paper)
    pen.text((grid.margin, grid.margin), title, fill=INK, font=font)
    for number, image in enumerate(images):
        left, top = grid.corner(*divmod(number, across))
        paper.paste(enlarged(image, scale), (left, top))
        for place, line in enumerate(captions[number]):
            ink = INK if place else QUIET
            pen.text((left, top + high + 2 + place * LINE), line, fill=ink, font=font)
    return png(paper)


def captions_of(means: Means, count: int, width: int, font: Font) -> list[list[str]]:
    """Return the lines below each image: its number, and its labels or its first number."""
    captions = []
    for number, target in enumerate(means.entries.targets[:count]):
        words = _labels(target) if means.has_shares else [numbers_in_words(target, 1)]
        captions.append([f"entry {number}", *_wrapped(words, width, font)])
    return captions


def _title(means: Means, drawn: int) -> str:
    count = len(means.entries)
    text = counted(count, "entry", "entries")
    cut = f", the first {drawn}" if drawn < count else ""
    return f"averaged data of {means.run}: {text}{cut}"


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
        size = "x".join(map(str, shape)) or "single numbers"
        raise _no_images(f"an entry is {size}")
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
