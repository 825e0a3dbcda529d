"""Natural noise that is drawn once: in memory, and on disk for later and other processes.

Sample i of a seed does not depend on how many are drawn, so a cache keeps the first ones of each
seed and draws only those that are missing.
"""

from __future__ import annotations

import platform
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.native.library import native
from edgefed.natural_noise.cache_files import Entry, NoiseFiles
from edgefed.natural_noise.shapes import noise_samples
from edgefed.natural_noise.types import Array, GeneratorName
from edgefed.version import VERSION


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
        self._arrays: OrderedDict[Entry, Array] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what another process makes its own of: the arrays in memory are not sent."""
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
        entry = Entry(int(seed), str(kind), tuple(int(each) for each in shape), drawn_by())
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

    def _kept(self, entry: Entry, count: int) -> Array | None:
        """Return the samples in memory or, where they are too few, on disk if there are more."""
        with self._lock:
            known = self._arrays.get(entry)
        if self._files is None or (known is not None and len(known) >= count):
            return known
        read = self._files.read(entry)
        return known if read is None or (known is not None and len(known) > len(read)) else read

    def _keep(self, entry: Entry, samples: Array) -> None:
        """Keep an array in memory, and drop others for it."""
        if not 0 < samples.nbytes <= self._limit_bytes:
            return
        with self._lock:
            known = self._arrays.pop(entry, samples)
            self._arrays[entry] = known if len(known) > len(samples) else samples
            while sum(each.nbytes for each in self._arrays.values()) > self._limit_bytes:
                self._arrays.popitem(last=False)


def drawn_by() -> str:
    """Return the versions and the processor type on which the rounding of an image depends."""
    own = f"edgefed {VERSION}", f"numpy {np.__version__}", platform.machine()
    return ", ".join((*own, f"{native().lanes} lanes"))
