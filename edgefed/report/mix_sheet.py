"""Mixes of a label as one labelled picture: a row has a mix's samples, then the mix as released."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from edgefed.errors import DataError, UsageError
from edgefed.report.tiles import (
    INK,
    LINE,
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
from edgefed.sharing.mix_preview import MixPreview
from edgefed.sharing.types import Array

MAX_PARTNERS = 6
"""Samples besides the dominant one that a row shows; those with the largest weights."""

MAX_PIXELS = 50_000_000
"""Size of a picture. Larger images are not shrunk, as that would average their noise away."""

_BYTE = 255


def mix_sheet(preview: MixPreview, names: Sequence[str] = ()) -> bytes:
    """Return a PNG file of mixes beside their samples; the head shows each column's noise scale.

    Args:
        preview: at least one mix.
        names: of the labels; their numbers where there are none.

    Raises:
        DataError: ``mix.pixels``: images with so many channels cannot be drawn.
        UsageError: ``mix.sheet``: the picture would be too large.
    """
    rows = [preview.sources(mix) for mix in range(len(preview.made.targets))]
    shown = [row[: 1 + MAX_PARTNERS] for row in rows]
    heads = _heads(preview, len(rows[0]), len(shown[0]))
    grid, scale = _grid(preview.samples.inputs.shape[1:], len(heads), len(rows))
    paper = Image.new("RGB", grid.size, PAPER)
    pen, font = ImageDraw.Draw(paper), text_font()
    for column, head in enumerate(heads):
        left, top = grid.corner(0, column)
        pen.text((left, top - LINE - 4), head, fill=QUIET, font=font)
    for row, sources in enumerate(shown):
        images = [preview.samples.inputs[number] for number, _ in sources]
        images += [mixes[row] for mixes in preview.mixes.values()]
        for column, image in enumerate(images):
            paper.paste(enlarged(_colours(image), scale), grid.corner(row, column))
        for column, (number, weight) in enumerate(sources):
            left, top = grid.corner(row, column)
            label = int(preview.samples.targets[number])
            for line, text in enumerate((_name(label, names), f"{weight:.1%}")):
                fitting, below = _fitting(text, grid.tile[0], font), top + grid.tile[1] + 2
                pen.text((left, below + (line - 2) * LINE), fitting, fill=INK, font=font)
    return png(paper)


def scale_in_words(scale: float) -> str:
    """Return a noise scale such as ``16/255``, or ``0.05``."""
    steps = round(scale * _BYTE)
    whole = steps > 0 and abs(scale * _BYTE - steps) < 1e-6
    return f"{steps}/{_BYTE}" if whole else f"{scale:.4g}"


def _heads(preview: MixPreview, width: int, shown: int) -> list[str]:
    """Return the heads of all columns."""
    partners = [f"sample {place}" for place in range(2, shown + 1)]
    if shown < width:
        partners[-1] += f" of {width}"
    noise = (scale_in_words(scale) for scale in preview.mixes)
    return ["sample 1", *partners, *(f"noise {words}" for words in noise)]


def _grid(shape: tuple[int, ...], across: int, down: int) -> tuple[TileGrid, int]:
    """Return where things go for images of a shape, and by what their sides are enlarged."""
    if len(shape) == 3 and shape[0] not in (1, 3, 4):
        raise DataError(
            f"Images of {shape[0]} channels cannot be drawn.",
            code="mix.pixels",
            hint="images of 1, 3 or 4 channels can",
        )
    height, width = shape[-2:]
    scale = enlargement(height, width)
    tile = (max(SIDE, width * scale), height * scale + 2 * LINE)
    grid = TileGrid(tile, across, down, top=12 + LINE + 4)
    if (pixels := grid.size[0] * grid.size[1]) > MAX_PIXELS:
        raise UsageError(
            f"The picture would have {pixels / 1e6:.0f} million pixels,"
            f" more than {MAX_PIXELS / 1e6:.0f}.",
            code="mix.sheet",
            hint="lower --count or --width",
        )
    return grid, scale


def _colours(image: Array) -> Array:
    """Return an image (channels, height, width) or (height, width) as (height, width, 3)."""
    planes = image if image.ndim == 3 else image[None]
    return np.broadcast_to(planes[:3], (3, *planes.shape[1:])).transpose(1, 2, 0)


def _name(label: int, names: Sequence[str]) -> str:
    known = label < len(names) and names[label] not in ("", str(label))
    return names[label] if known else f"label {label}"


def _fitting(text: str, width: int, font: Font) -> str:
    """Return text, cut where it is wider than a tile."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(f"{text}...") > width:
        text = text[:-1]
    return f"{text}..."
