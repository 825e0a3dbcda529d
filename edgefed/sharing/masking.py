"""Masks that hide numbers modulo 2^64 until masks cancel in a sum."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

Cells = npt.NDArray[np.uint64]
"""Numbers modulo 2^64."""

BLOCK = 32 * 1024
"""Cells handled at a time, so that the temporaries stay in the cache."""

_START = bytes(16)
"""Counter and nonce of the key stream: each key makes one stream."""


def add_mask(cells: Cells, key: bytes, sign: int) -> None:
    """Add the key stream of ChaCha20 to numbers in place, or with ``sign`` -1 subtract it.

    ChaCha20 is fast on boards without instructions for AES.
    """
    stream = Cipher(ChaCha20(key, _START), mode=None).encryptor()
    zeros = bytes(8 * BLOCK)
    for start in range(0, cells.size, BLOCK):
        part = cells[start : start + BLOCK]
        mask = np.frombuffer(stream.update(zeros[: 8 * part.size]), "<u8")
        if sign > 0:
            part += mask
        else:
            part -= mask


def packed(cells: Cells, width: int) -> npt.NDArray[np.uint8]:
    """Return the lowest ``width`` bytes of each number, the lowest first."""
    rows = _little(cells).view(np.uint8).reshape(-1, 8)
    return np.ascontiguousarray(rows[:, :width]).reshape(-1)


def unpacked(data: npt.NDArray[Any], width: int) -> Cells:
    """Return the numbers modulo 2^(8 width) that ``packed`` wrote."""
    rows = np.zeros((data.size // width, 8), np.uint8)
    rows[:, :width] = data.reshape(-1, width)
    return _little(rows.reshape(-1).view(np.uint64))


def signed(cells: Cells, width: int) -> npt.NDArray[np.int64]:
    """Return numbers modulo 2^(8 width) as signed ones."""
    shift = 64 - 8 * width
    raised = (cells << np.uint64(shift)).view(np.int64)
    return raised >> np.int64(shift)


def _little(cells: Cells) -> Cells:
    """Return numbers with their lowest byte first in memory, whatever the machine."""
    return cells if sys.byteorder == "little" else cells.byteswap()
