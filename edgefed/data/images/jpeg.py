"""JPEG images packed into an NPZ file: decoded once, with the pixels cached on disk.

``jpeg_train`` (bytes) holds image i from ``offsets_train[i]`` to ``offsets_train[i + 1]``; the
same applies to ``_test``. The pixels are cached in an ``.npy`` file that is named by the digest of
those bytes, so that each NPZ file has its own cache.
"""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np

from edgefed.data.base.limits import MAX_BYTES, VALUE_BYTES, check_bytes
from edgefed.data.base.types import Array
from edgefed.data.images.image_cache import UNUSED_SECONDS
from edgefed.errors import DataError, StorageError
from edgefed.files.writing import write_atomic

MAX_SIDE = 4096
"""Longest side of an image, in pixels; a header may claim more than memory holds."""

LIMIT_BYTES = 8 * 2**30
"""Most bytes of all cached pixels in a folder; those that are needed are kept."""


def unpacked(
    jpeg: Array, offsets: Array, cache: Path, where: str, max_bytes: int = MAX_BYTES
) -> tuple[Array, str]:
    """Return the pixels and, where they could not be kept, a warning.

    Args:
        jpeg: (bytes,) uint8.
        offsets: (n + 1,) integers.
        cache: folder that keeps the pixels.
        where: names the file in errors.
        max_bytes: most memory that the images may take, as float32.

    Returns:
        uint8 (n, height, width[, 3]), and an empty text or a warning.

    Raises:
        DataError: an image cannot be decoded, or differs in size from the first;
            ``data.too_large``.
    """
    _check_offsets(jpeg, offsets, where)
    digest = hashlib.sha256(offsets.astype("<i8").tobytes() + jpeg.tobytes()).hexdigest()
    path = cache / f"jpeg-{digest[:32]}.npy"
    kept = _kept(path, len(offsets) - 1, where, max_bytes)
    if kept is not None:
        with suppress(OSError):
            os.utime(path)
        return kept, ""
    pixels = _decoded(jpeg.tobytes(), offsets, where, max_bytes)
    buffer = io.BytesIO()
    np.save(buffer, pixels, allow_pickle=False)
    try:
        write_atomic(path, buffer.getvalue())
    except StorageError as error:
        return pixels, f"the decoded images are not cached, and are decoded again: {error}"
    _remove_unused(path)
    return pixels, ""


def _remove_unused(newest: Path) -> None:
    """Remove pixels that nothing used for a week, and the oldest above ``LIMIT_BYTES``."""
    with suppress(OSError):
        files = [(path.stat(), path) for path in newest.parent.glob("jpeg-*.npy")]
        files.sort(key=lambda file: -file[0].st_mtime_ns)
        taken, now = 0, newest.stat().st_mtime
        for status, path in files:
            taken += status.st_size
            if path != newest and (taken > LIMIT_BYTES or now - status.st_mtime > UNUSED_SECONDS):
                path.unlink(missing_ok=True)


def _kept(path: Path, images: int, where: str, max_bytes: int) -> Array | None:
    """Return the pixels of a file that was written here; None if it is not there, or damaged."""
    try:
        # A map of a file, unlike a copy, cannot be larger than the file.
        pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    # NumPy's reader of headers fails in many ways.
    except Exception:
        return None
    fits = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.ndim in (3, 4)
    if not fits or len(pixels) != images:
        return None
    check_bytes(pixels.size * VALUE_BYTES, max_bytes, where)
    return np.array(pixels)


def _check_offsets(jpeg: Array, offsets: Array, where: str) -> None:
    sound = (
        jpeg.dtype == np.uint8
        and jpeg.ndim == 1
        and offsets.dtype.kind in "iu"
        and offsets.ndim == 1
        and len(offsets) > 0
    )
    # Compared, not subtracted: a difference of unsigned integers would wrap around.
    rising = sound and bool((offsets[1:] >= offsets[:-1]).all())
    if not rising or int(offsets[0]) < 0 or int(offsets[-1]) > len(jpeg):
        raise DataError(
            f"{where} has offsets that do not match its JPEG bytes.",
            code="data.unreadable",
            hint="image i is jpeg[offsets[i]:offsets[i + 1]]; copy the file again",
        )


def _decoded(packed: bytes, offsets: Array, where: str, max_bytes: int) -> Array:
    """Return all images as one array, filled as they are decoded."""
    images = len(offsets) - 1
    pixels: Array = np.zeros((0, 1, 1), np.uint8)
    for number in range(images):
        start, end = int(offsets[number]), int(offsets[number + 1])
        image = _image(packed[start:end], f"{where}: image {number}")
        if number == 0:
            check_bytes(images * image.size * VALUE_BYTES, max_bytes, where)
            pixels = np.empty((images, *image.shape), np.uint8)
        if image.shape != pixels.shape[1:]:
            raise DataError(
                f"{where}: image {number} has shape {image.shape}, not {pixels.shape[1:]}.",
                hint="store images of one size and one number of channels in a file",
            )
        pixels[number] = image
    return pixels


def _image(data: bytes, where: str) -> Array:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # Pillow warns of many pixels; here they are refused.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
                if max(image.size) > MAX_SIDE or image.mode not in ("L", "RGB"):
                    raise ValueError(f"it is {image.size[0]}x{image.size[1]} pixels, {image.mode}")
                return np.asarray(image)
    # A damaged file makes Pillow's decoder fail in many ways.
    except Exception as error:
        raise DataError(
            f"{where} cannot be decoded: {error}.",
            code="data.unreadable",
            hint="copy the file again",
        ) from error
