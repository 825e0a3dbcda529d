"""A device's samples in a file without a name, which an agent keeps for its training process.

The agent itself does not map the file. On Linux it is in memory, elsewhere on disk. It holds
pickles, which only the agent of this device writes and only its training process reads.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from typing import IO

from edgefed.data.base.types import DeviceData
from edgefed.files.samples import stored
from edgefed.process.memory import return_freed

_ALIGNMENT = 64


class TrainingData:
    """The samples that tasks are trained with.

    Args:
        data: the samples; images in files stay there, and the files stay in use.

    Attributes:
        file: has the samples.
    """

    def __init__(self, data: DeviceData) -> None:
        self._images = [stored(part.inputs) for part in (data.train, data.test)]
        buffers: list[pickle.PickleBuffer] = []
        body = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(body), *(buffer.raw() for buffer in buffers)]
        self.file = _nameless()
        for part in (memoryview(pickle.dumps([len(part) for part in parts])), *parts):
            self.file.write(part)
            self.file.write(bytes(-len(part) % _ALIGNMENT))
        self.file.flush()
        return_freed()

    def close(self) -> None:
        """Free the file, once no process uses it."""
        self.file.close()


def read_training_data(descriptor: int) -> DeviceData:
    """Return the samples in a file of ``TrainingData``; the arrays are mapped, not copied."""
    mapped = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))
    sizes = pickle.loads(mapped)
    parts, start = [], len(mapped) - sum(size + -size % _ALIGNMENT for size in sizes)
    for size in sizes:
        parts.append(mapped[start : start + size])
        start += size + -size % _ALIGNMENT
    data: DeviceData = pickle.loads(parts[0], buffers=parts[1:])
    return data


def _nameless() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("edgefed-samples", os.MFD_CLOEXEC), "w+b")
    return tempfile.TemporaryFile()
