"""Mixes of a label as one labelled picture: a row has a mix's samples, then the mix as released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

_GAP, _MARGIN, _BYTE = 10, 12, 255


@dataclass(frozen=True)
class _Layout:
    """Where things go, in pixels; ``tile`` is the width and the height of an enlarged image."""

    scale: int
    tile: tuple[int, int]
    across: int
    down: int

    @property
    def size(self) -> tuple[int, int]:
        left, top = self.corner(self.down, self.across)
        return left - _GAP + _MARGIN, top - _GAP + _MARGIN

    def corner(self, row: int, column: int) -> tuple[int, int]:
        height = self.tile[1] + 2 * LINE + _GAP
        return _MARGIN + column * (self.tile[0] + _GAP), _MARGIN + LINE + 4 + row * height


def mix_sheet(preview: MixPreview, names: Sequence[str] = ()) -> bytes:
    """Return a PNG file of mixes beside their samples; the head tells each column's noise scale.

    Args:
        preview: at least one mix.
        names: what the labels are called; their numbers where there are none.

    Raises:
        DataError: ``mix.pixels``: images with so many channels cannot be drawn.
        UsageError: ``mix.sheet``: the picture would be too large.
    """
    rows = [preview.sources(mix) for mix in range(len(preview.made.targets))]
    shown = [row[: 1 + MAX_PARTNERS] for row in rows]
    heads = _heads(preview, len(rows[0]), len(shown[0]))
    layout = _layout(preview.samples.inputs.shape[1:], len(heads), len(rows))
    paper = Image.new("RGB", layout.size, PAPER)
    pen, font = ImageDraw.Draw(paper), text_font()
    for column, head in enumerate(heads):
        left, top = layout.corner(0, column)
        pen.text((left, top - LINE - 4), head, fill=QUIET, font=font)
    for row, sources in enumerate(shown):
        for column, (number, weight) in enumerate(sources):
            left, top = _paste(paper, preview.samples.inputs[number], layout, row, column)
            label = int(preview.samples.targets[number])
            for line, text in enumerate((_name(label, names), f"{weight:.1%}")):
                fitting = _fitting(text, layout.tile[0], font)
                pen.text((left, top + line * LINE), fitting, fill=INK, font=font)
        for column, mixes in enumerate(preview.mixes.values(), len(sources)):
            _paste(paper, mixes[row], layout, row, column)
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
    return ["sample 1", *partners, *(f"noise {each}" for each in noise)]


def _layout(shape: tuple[int, ...], across: int, down: int) -> _Layout:
    """Return where things go for images of a shape."""
    if len(shape) == 3 and shape[0] not in (1, 3, 4):
        raise DataError(
            f"Images of {shape[0]} channels cannot be drawn.",
            code="mix.pixels",
            hint="images of 1, 3 or 4 channels can",
        )
    height, width = shape[-2:]
    scale = enlargement(height, width)
    layout = _Layout(scale, (max(SIDE, width * scale), height * scale), across, down)
    if (pixels := layout.size[0] * layout.size[1]) > MAX_PIXELS:
        raise UsageError(
            f"The picture would have {pixels / 1e6:.0f} million pixels,"
            f" more than {MAX_PIXELS / 1e6:.0f}.",
            code="mix.sheet",
            hint="lower --count or --width",
        )
    return layout


def _paste(
    paper: Image.Image, image: Array, layout: _Layout, row: int, column: int
) -> tuple[int, int]:
    """Draw an image and return where the text below it begins."""
    left, top = layout.corner(row, column)
    paper.paste(enlarged(_colours(image), layout.scale), (left, top))
    return left, top + layout.tile[1] + 2


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
