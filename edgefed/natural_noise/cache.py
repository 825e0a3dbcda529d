"""Natural noise that is drawn once: in memory, and on disk for later and other processes.

Sample i of a seed does not depend on how many are drawn, so a cache keeps the first ones of each
seed and draws only those that are missing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.errors import StorageError
from edgefed.files.writing import write_atomic
from edgefed.native.library import native
from edgefed.natural_noise.shapes import noise_samples
from edgefed.natural_noise.types import Array, GeneratorName
from edgefed.version import VERSION

SUFFIX = ".noise"
_FORMAT = b"edgefed-noise-1\n"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NoiseCacheEntry:
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

    def read(self, entry: NoiseCacheEntry) -> Array | None:
        """Return the samples of a file, read-only; None if there is no sound one."""
        path = self._path(entry)
        try:
            if path.stat().st_size > self._limit_bytes:
                samples = None
            else:
                samples = _samples(path.read_bytes(), entry)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot read {path}: {error.strerror or type(error).__name__}")
            return None
        with suppress(OSError):  # a disk that is only read
            if samples is None:
                path.unlink()
            else:
                os.utime(path)
        return samples

    def write(self, entry: NoiseCacheEntry, samples: Array) -> None:
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

    def _path(self, entry: NoiseCacheEntry) -> Path:
        return self._folder / f"{hashlib.sha256(entry.line()).hexdigest()[:32]}{SUFFIX}"

    def _shrink(self) -> None:
        """Remove the files that were used least recently, until the others are within the limit."""
        files: list[tuple[int, str, int]] = []
        for path in self._folder.glob(f"*{SUFFIX}"):
            with suppress(OSError):  # another process removed it
                status = path.stat()
                files.append((status.st_mtime_ns, path.name, status.st_size))
        total = sum(size for _, _, size in files)
        for _, name, size in sorted(files):
            if total <= self._limit_bytes:
                return
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)
                total -= size

    def _warn(self, what: str) -> None:
        """Log a refused write, the first time only."""
        if not self._warned:
            log.warning("natural noise is not kept on disk: %s", what)
        self._warned = True


def _samples(data: bytes, entry: NoiseCacheEntry) -> Array | None:
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


class NoiseCache:
    """Draws natural noise and keeps it; threads and processes may share a folder.

    Args:
        folder: for files of samples; None keeps them in memory only.
        limit_bytes: of the files, and of the arrays in memory. The least recently used ones are
            dropped.
    """

    def __init__(self, folder: Path | None, limit_bytes: int) -> None:
        self._folder = folder
        self._files = None if folder is None else NoiseFiles(folder, limit_bytes)
        self._limit_bytes = limit_bytes
        self._arrays: OrderedDict[NoiseCacheEntry, Array] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the parts from which another process makes its own: arrays are not sent."""
        return NoiseCache, (self._folder, self._limit_bytes)

    def samples(self, seed: int, count: int, shape: tuple[int, ...], kind: GeneratorName) -> Array:
        """Return the first samples of a seed: uint8 (count, *shape), read-only.

        They are those of ``noise_samples``. A full or damaged disk only costs the time to draw.

        Args:
            seed: of the images.
            count: number of samples.
            shape: of one sample.
            kind: name of the generator.

        Raises:
            DataError: ``noise.shape``, as ``noise_samples``.
            UsageError: ``noise.settings``, as ``noise_samples``.
        """
        none = noise_samples(seed, 0, shape, kind=kind, first=count)  # refuses what is no noise
        entry = NoiseCacheEntry(
            int(seed), str(kind), tuple(int(size) for size in shape), drawn_by()
        )
        samples = self._kept(entry, count)
        samples = none if samples is None else samples
        if len(samples) < count:
            first = len(samples)
            missing = noise_samples(seed, count - first, shape, kind=kind, first=first)
            samples = np.concatenate([samples, missing])
            if self._files is not None:
                self._files.write(entry, samples)
        samples.flags.writeable = False
        self._keep(entry, samples)
        return samples[:count]

    def _kept(self, entry: NoiseCacheEntry, count: int) -> Array | None:
        """Return the samples in memory or, where they are too few, on disk if there are more."""
        with self._lock:
            known = self._arrays.get(entry)
        if self._files is None or (known is not None and len(known) >= count):
            return known
        read = self._files.read(entry)
        return known if read is None or (known is not None and len(known) > len(read)) else read

    def _keep(self, entry: NoiseCacheEntry, samples: Array) -> None:
        """Keep an array in memory, and drop others for it."""
        if not 0 < samples.nbytes <= self._limit_bytes:
            return
        with self._lock:
            known = self._arrays.pop(entry, samples)
            self._arrays[entry] = known if len(known) > len(samples) else samples
            while sum(array.nbytes for array in self._arrays.values()) > self._limit_bytes:
                self._arrays.popitem(last=False)


def drawn_by() -> str:
    """Return the versions and the processor type on which the rounding of an image depends."""
    own = f"edgefed {VERSION}", f"numpy {np.__version__}", platform.machine()
    return ", ".join((*own, f"{native().lanes} lanes"))
