"""Natural noise on disk: one file of samples for each seed, generator and shape.

A file is a line with a name of the format, a line with the SHA-256 of all that follows, a line of
JSON that describes its samples, and their bytes. A file with another description or a wrong digest
is removed. File times show which one was used last.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from edgefed.errors import StorageError
from edgefed.files import write_atomic
from edgefed.natural_noise.types import Array

SUFFIX = ".noise"
_FORMAT = b"edgefed-noise-1\n"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """Description of the samples in a file or an array.

    Attributes:
        seed, kind, shape: as ``noise_samples`` takes them.
        drawn_by: versions and processor that drew them: others may round otherwise.
    """

    seed: int
    kind: str
    shape: tuple[int, ...]
    drawn_by: str

    def line(self) -> bytes:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self), sort_keys=True).encode() + b"\n"


class NoiseFiles:
    """The files of one folder, up to a total size; for several processes at once.

    A failure to write is logged once and has no other effect.

    Args:
        folder: created with the first file.
        limit_bytes: of all files; the least recently used ones are removed.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._warned = False

    def read(self, entry: Entry) -> Array | None:
        """Return the samples of a file, read-only; None if there is no sound one."""
        path = self._path(entry)
        try:
            if path.stat().st_size > self._limit_bytes:
                found = None
            else:
                found = _samples(path.read_bytes(), entry)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot read {path}: {error.strerror or type(error).__name__}")
            return None
        with suppress(OSError):  # a disk that is only read
            if found is None:
                path.unlink()
            else:
                os.utime(path)
        return found

    def write(self, entry: Entry, samples: Array) -> None:
        """Write samples, unless the file has as many; it must have been read before."""
        body = entry.line() + samples.tobytes()
        data = _FORMAT + hashlib.sha256(body).hexdigest().encode() + b"\n" + body
        path = self._path(entry)
        if len(data) > self._limit_bytes or _size(path) >= len(data):
            return
        try:
            write_atomic(path, data, sync=False)
        except StorageError as error:
            self._warn(error.message)
            return
        self._shrink()

    def _path(self, entry: Entry) -> Path:
        return self._folder / f"{hashlib.sha256(entry.line()).hexdigest()[:32]}{SUFFIX}"

    def _shrink(self) -> None:
        """Remove the files that were used least recently, until the others are within the limit."""
        found: list[tuple[int, str, int]] = []
        for path in self._folder.glob(f"*{SUFFIX}"):
            with suppress(OSError):  # another process removed it
                status = path.stat()
                found.append((status.st_mtime_ns, path.name, status.st_size))
        total = sum(size for _, _, size in found)
        for _, name, size in sorted(found):
            if total <= self._limit_bytes:
                return
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)
                total -= size

    def _warn(self, what: str) -> None:
        """Log what the disk refused, the first time only."""
        if not self._warned:
            log.warning("natural noise is not kept on disk: %s", what)
        self._warned = True


def _samples(data: bytes, entry: Entry) -> Array | None:
    """Return the samples that a file's bytes are; None if they are anything else."""
    if not data.startswith(_FORMAT):
        return None
    digest, _, body = data[len(_FORMAT) :].partition(b"\n")
    line = entry.line()
    if hashlib.sha256(body).hexdigest().encode() != digest or not body.startswith(line):
        return None
    if (len(body) - len(line)) % int(np.prod(entry.shape)):
        return None
    return np.frombuffer(body, np.uint8, offset=len(line)).reshape(-1, *entry.shape)


def _size(path: Path) -> int:
    """Return a file's size; 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
