"""Image files become pixels of one shape; a file that cannot be read is reported, not fatal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from edgefed.config.recipe import Section
from edgefed.data.types import Array
from edgefed.errors import DataError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".webp"})


class ImageOptions(Section):
    """How image files become inputs."""

    size: Annotated[int, Field(ge=0, le=4096)] = 0
    """Height and width in pixels to scale to; 0 for images that all have one size already."""

    greyscale: bool = False
    """One channel instead of red, green and blue."""


def image_files(folder: Path) -> list[Path]:
    """Return the image files that lie in ``folder`` itself, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def read_images(paths: Sequence[Path], options: ImageOptions) -> tuple[Array, list[int]]:
    """Return uint8 pixels (n, height, width[, 3]) and the positions of the files they come from.

    A file that cannot be read has no position and no pixels.

    Raises:
        DataError: the images differ in size and ``options.size`` is 0.
    """
    pixels: list[Array] = []
    positions: list[int] = []
    for position, path in enumerate(paths):
        image = _read_image(path, options)
        if image is None:
            continue
        if pixels and image.shape != pixels[0].shape:
            raise _sizes_differ(paths[positions[0]], pixels[0], path, image)
        pixels.append(image)
        positions.append(position)
    return np.stack(pixels) if pixels else np.zeros((0, 1, 1), np.uint8), positions


def _read_image(path: Path, options: ImageOptions) -> Array | None:
    from PIL import Image

    try:
        with Image.open(path) as image:
            plain = image.convert("L" if options.greyscale else "RGB")
            if options.size:
                side = (options.size, options.size)
                plain = plain.resize(side, Image.Resampling.BILINEAR)
            return np.asarray(plain)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):
        return None


def _sizes_differ(first: Path, one: Array, second: Path, other: Array) -> DataError:
    side = min(*one.shape[:2], *other.shape[:2])
    sizes = [f"{image.shape[1]}x{image.shape[0]}" for image in (one, other)]
    return DataError(
        f"{first} is {sizes[0]} pixels but {second} is {sizes[1]}.",
        hint=f"scale them all: folder:FOLDER?size={side} on a device, size = {side} in a recipe",
    )
