"""Read an image file as upright uint8 pixels."""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import nullcontext
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edgefed.data.base.limits import MAX_PIXELS
from edgefed.errors import DataError, EdgeFedError

if TYPE_CHECKING:
    from PIL.Image import Image as ImageFile

Pixels = npt.NDArray[np.uint8]

Shape = tuple[int, int, int]
"""Height, width and channels of an image."""

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The allowed formats of a file, regardless of its name; other decoders of Pillow start
programs."""

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".webp"})

UNREADABLE = "data.unreadable"
"""Code of the error of a file that is not an image."""

TOO_LARGE = "data.too_large"
"""Code of the error of an image with too many pixels."""

LARGE_PIXELS = 2**23
"""Images with more pixels are decoded one at a time, however many threads decode."""

_LARGE = threading.Lock()

LARGE_READ = 2**16
"""Bytes above which a read is limited to the rest of a file."""

_ORIENTATION = 0x0112

_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""How an image is turned upright, by its EXIF orientation."""


class _ImageFile(BufferedReader):
    """A file, of which a read takes no more memory than is left of it.

    Pillow reads as many bytes as a header states, such as 4 GiB for a chunk of a damaged PNG, and
    Python takes the memory for all of them first.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(FileIO(path, opener=_open_regular))
        self._bytes = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """Return so many bytes, or those that are left."""
        if size is not None and size > LARGE_READ:
            size = min(size, max(0, self._bytes - self.tell()))
        return super().read(size)


def _open_regular(path: str, flags: int) -> int:
    """Open a file; a pipe or a device, which a read may wait for, is refused."""
    file = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return file


def image_files(folder: Path) -> list[Path]:
    """Return the image files that lie in ``folder`` itself, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def read_pixels(path: Path, size: int = 0, greyscale: bool = False) -> Pixels:
    """Return an image file's pixels in the common form: (height, width[, 3]).

    The image is turned upright according to its EXIF orientation.

    Args:
        path: the file.
        size: height and width to scale to; 0 for its own.
        greyscale: whether to return one value for each pixel, without an axis of channels.

    Raises:
        DataError: ``data.unreadable``: it is missing or not an image; ``data.too_large``: it has
            too many pixels.
    """
    from PIL import Image

    try:
        with _ImageFile(path) as file, Image.open(file, formats=FORMATS) as image:
            check_pixels(image.size, str(path))
            with _LARGE if image.size[0] * image.size[1] > LARGE_PIXELS else nullcontext():
                return _converted(image, size, greyscale)
    except EdgeFedError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_many_pixels(str(path), "it declares more") from error
    except MemoryError as error:
        raise _too_many_pixels(str(path), "memory does not suffice for it") from error
    # A damaged file makes Pillow's decoders fail in many ways.
    except Exception as error:
        raise DataError(
            f"{path} cannot be read as an image.",
            code=UNREADABLE,
            hint="copy the file again, or remove it",
        ) from error


def _converted(image: ImageFile, size: int, greyscale: bool) -> Pixels:
    """Return the pixels of an image that is open, upright and scaled."""
    from PIL import Image

    plain = _of_eight_bits(image).convert("L" if greyscale else "RGB")
    turn = _TURNS.get(_orientation(image))
    if turn is not None:
        plain = plain.transpose(Image.Transpose[turn])
    if size:
        plain = plain.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(plain)


def _of_eight_bits(image: ImageFile) -> ImageFile:
    """Return an image with the upper half of 16-bit grey values, as Pillow does it with colours.

    Its own conversion would make everything above 255 white.
    """
    from PIL import Image

    # Values of these formats have 16 bits, which some versions of Pillow read into 32.
    widened = image.mode == "I" and image.format in ("PNG", "PPM")
    if not (widened or image.mode.startswith("I;16")):
        return image
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))


def _orientation(image: ImageFile) -> int:
    """Return the EXIF orientation of an image that was decoded; 1 is upright.

    Pillow itself turns a TIFF image upright when it decodes it.
    """
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    # EXIF that is damaged makes Pillow fail in many ways, and the image is as good as without.
    except Exception:
        return 1


def shape_of(pixels: Pixels) -> Shape:
    """Return the height, width and number of channels of an image's pixels."""
    return pixels.shape[0], pixels.shape[1], pixels.size // (pixels.shape[0] * pixels.shape[1])


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
        code=TOO_LARGE,
        hint="scale the image down, or remove it",
    )


def sizes_differ(first: Path, one: Shape, second: Path, other: Shape) -> DataError:
    """Return the error of two images of different (height, width, channels)."""
    side = min(*one[:2], *other[:2])
    sizes = [f"{shape[1]}x{shape[0]}" for shape in (one, other)]
    return DataError(
        f"{first} is {sizes[0]} pixels but {second} is {sizes[1]}.",
        hint=f"scale them all: folder:FOLDER?size={side} on a device, size = {side} in a recipe",
    )
