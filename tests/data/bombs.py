"""Small files that declare, or decompress to, more than the available memory."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.fuzzing.file_targets import npy_header

CHUNK = 2**24


def write_members(path: Path, **members: bytes) -> Path:
    """Write an NPZ file of members as they are given."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


def repacked(source: Path, path: Path, compression: int) -> Path:
    """Write the members of an NPZ file again under another compression."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return path


def write_lzma(path: Path, packed: bytes, declared: int) -> Path:
    """Write an NPZ file whose array ``x`` is raw LZMA that declares its unpacked size."""
    properties = struct.pack("<BI", 93, 2**16)
    data = struct.pack("<BBH", 9, 4, len(properties)) + properties + packed
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", data)
        archive.writestr("y.npy", npy_header("(100,)", "|u1") + bytes(100))
        info = archive.getinfo("x.npy")
        info.compress_type, info.file_size = zipfile.ZIP_LZMA, declared
    raw = bytearray(path.read_bytes())
    struct.pack_into("<H", raw, 8, zipfile.ZIP_LZMA)
    path.write_bytes(raw)
    return path


def write_zeros(path: Path, samples: int, values: int) -> Path:
    """Write an NPZ file of so many float32 zeros, which compress to a thousandth."""
    start = npy_header(f"({samples}, {values})")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            member.write(start)
            left = samples * values * 4
            while left:
                left -= member.write(bytes(min(CHUNK, left)))
        labels = npy_header(f"({samples},)", "|u1") + bytes(samples)
        archive.writestr("y.npy", labels)
    return path


def write_png(path: Path, width: int, height: int) -> Path:
    """Write a whole black PNG of one bit a pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    packer = zlib.compressobj(1)
    row = bytes(1 + (width + 7) // 8)
    rows = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
        + chunk(b"IDAT", rows)
        + chunk(b"IEND", b"")
    )
    return path


def write_packed(path: Path, jpeg: bytes, offsets: Iterable[int]) -> Path:
    """Write an NPZ file of JPEG images that lie at these places."""
    places = np.array(list(offsets), np.int64)
    np.savez_compressed(
        path,
        jpeg_train=np.frombuffer(jpeg, np.uint8),
        offsets_train=places,
        y_train=np.zeros(len(places) - 1, np.uint8),
    )
    return path
