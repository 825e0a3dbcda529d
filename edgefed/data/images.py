"""Read image files as pixels of one shape; unreadable files are reported, not fatal."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from edgefed.config.recipe import Section
from edgefed.data.limits import MAX_PIXELS, VALUE_BYTES, check_bytes
from edgefed.data.types import Array
from edgefed.errors import DataError, EdgeFedError

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What a file may be, whatever its name says; other decoders of Pillow start programs."""

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".webp"})


UNREADABLE = "data.unreadable"
"""Code of the error of a file that is no image."""


class ImageOptions(Section):
    """How image files become inputs."""

    size: Annotated[int, Field(ge=0, le=4096)] = 0
    """Height and width in pixels to scale to; 0 if all images have the same size."""

    greyscale: bool = False
    """One channel instead of red, green and blue."""


def image_files(folder: Path) -> list[Path]:
    """Return the image files that lie in ``folder`` itself, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def read_images(
    paths: Sequence[Path], options: ImageOptions, max_bytes: int
) -> tuple[Array, list[int]]:
    """Return uint8 pixels (n, height, width[, 3]) and the positions of the files they come from.

    A file that cannot be read has no position and no pixels.

    Raises:
        DataError: the images differ in size and ``options.size`` is 0; ``data.too_large``: one has
            too many pixels, or all of them take more than ``max_bytes``.
    """
    needed = 0
    pixels: list[Array] = []
    positions: list[int] = []
    for position, path in enumerate(paths):
        try:
            image = read_pixels(path, options.size, options.greyscale)
        except DataError as error:
            if error.code == UNREADABLE:
                continue
            raise
        if pixels and image.shape != pixels[0].shape:
            raise _sizes_differ(paths[positions[0]], pixels[0], path, image)
        needed += image.size * VALUE_BYTES
        check_bytes(needed, max_bytes, f"The folder of {path}")
        pixels.append(image)
        positions.append(position)
    return np.stack(pixels) if pixels else np.zeros((0, 1, 1), np.uint8), positions


def read_pixels(path: Path, size: int = 0, greyscale: bool = False) -> Array:
    """Return an image's pixels, uint8 (height, width[, 3]).

    The image is turned as its EXIF data says, converted to RGB or grey, and scaled, in this order.
    Training and prediction read their images here, so that they see the same pixels.

    Args:
        path: the file.
        size: height and width to scale to; 0 to leave both as they are.
        greyscale: one channel instead of three.

    Raises:
        DataError: ``data.unreadable``: it is missing, or no image; ``data.too_large``: it has too
            many pixels.
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                check_pixels(image.size, str(path))
                plain = ImageOps.exif_transpose(image).convert("L" if greyscale else "RGB")
                if size:
                    plain = plain.resize((size, size), Image.Resampling.BILINEAR)
                return np.asarray(plain)
    except EdgeFedError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_many_pixels(str(path), "it declares more") from error
    except MemoryError as error:
        raise _too_many_pixels(str(path), "memory does not suffice for it") from error
    # A damaged file makes Pillow's decoders fail in many ways.
    except Exception as error:
        raise DataError(
            f"{path} is no image that can be read.",
            code=UNREADABLE,
            hint="copy the file again, or remove it",
        ) from error


def check_pixels(sides: tuple[int, int], where: str) -> None:
    """Check an image's width and height, as its header states them.

    Raises:
        DataError: ``data.too_large``.
    """
    width, height = sides
    if width * height > MAX_PIXELS:
        raise _too_many_pixels(where, f"it is {width}x{height} pixels")


def _too_many_pixels(where: str, what: str) -> DataError:
    return DataError(
        f"{where} is too large: {what}; an image may have at most {MAX_PIXELS} pixels.",
        code="data.too_large",
        hint="scale the image down, or remove it",
    )


def _sizes_differ(first: Path, one: Array, second: Path, other: Array) -> DataError:
    side = min(*one.shape[:2], *other.shape[:2])
    sizes = [f"{image.shape[1]}x{image.shape[0]}" for image in (one, other)]
    return DataError(
        f"{first} is {sizes[0]} pixels but {second} is {sizes[1]}.",
        hint=f"scale them all: folder:FOLDER?size={side} on a device, size = {side} in a recipe",
    )
