"""The header of an NPY file, with a shape of one's choice."""

from __future__ import annotations

import struct


def header(shape: str, kind: str = "<f4") -> bytes:
    """Return the header as NumPy writes it."""
    text = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
