"""The updates of a cohort, read one device at a time and processed a few values at a time.

An update is a set of named tensors. All floating-point tensors together are its vector. A rule that
needs one value of all devices at once gets it in batches, which bound the memory: a batch holds the
same pieces of tensors of every device, and every batch reads every device's update once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefed.learn.base.types import Array, Tensors

BATCH_BYTES = 128 * 1024**2
"""Most bytes of a batch; but it has at least one value of every device."""

BLOCK = 64 * 1024
"""Values of one device that are computed with at a time, in float64."""

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Last words of the names of batch normalisation's statistics."""


@dataclass(frozen=True)
class Piece:
    """A part of a tensor, as positions in its flat values."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Updates:
    """The updates of some devices.

    Attributes:
        count: number of devices.
        read: returns the update of a device by its number; only the last one is kept in memory.
        shapes: shape of each tensor by name.
        dtypes: dtype of each tensor by name.
        batch_bytes: most bytes of a batch.
    """

    count: int
    read: Callable[[int], Tensors]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, np.dtype[Any]]
    batch_bytes: int = BATCH_BYTES

    @classmethod
    def of(cls, updates: Sequence[Tensors], batch_bytes: int = BATCH_BYTES) -> Updates:
        """Return updates that are in memory."""
        return cls.read_by(len(updates), lambda number: updates[number], batch_bytes)

    @classmethod
    def read_by(
        cls, count: int, read: Callable[[int], Tensors], batch_bytes: int = BATCH_BYTES
    ) -> Updates:
        """Return updates that a function reads, shaped like the first one."""
        first = read(0)
        shapes = {name: array.shape for name, array in first.items()}
        dtypes = {name: array.dtype for name, array in first.items()}
        return cls(count, read, shapes, dtypes, batch_bytes)

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names of tensors whose dtype is of a kind: ``f`` for floats, ``iu``."""
        return tuple(name for name, dtype in self.dtypes.items() if dtype.kind in kind)

    def stacks(self, names: Sequence[str]) -> Iterator[tuple[Piece, Array]]:
        """Yield pieces of the named tensors with their values: a row for each device."""
        for batch in self._batches(names):
            rows = [np.empty((self.count, p.stop - p.start), self.dtypes[p.name]) for p in batch]
            for number in range(self.count):
                update = self.read(number)
                for piece, row in zip(batch, rows, strict=True):
                    row[number] = np.ravel(update[piece.name])[piece.start : piece.stop]
            for piece, row in zip(batch, rows, strict=True):
                yield from _blocks(piece, row)

    def _batches(self, names: Sequence[str]) -> Iterator[list[Piece]]:
        batch: list[Piece] = []
        room = self.batch_bytes
        for piece, nbytes in self._pieces(names):
            if batch and nbytes > room:
                yield batch
                batch, room = [], self.batch_bytes
            batch.append(piece)
            room -= nbytes
        if batch:
            yield batch

    def _pieces(self, names: Sequence[str]) -> Iterator[tuple[Piece, int]]:
        """Yield pieces that fit into a batch, with their bytes of all devices."""
        for name in names:
            size = int(np.prod(self.shapes[name], dtype=np.int64))
            entry_bytes = self.count * self.dtypes[name].itemsize
            length = max(1, self.batch_bytes // entry_bytes)
            for start in range(0, size, length):
                stop = min(size, start + length)
                yield Piece(name, start, stop), (stop - start) * entry_bytes

    def empty(self, names: Sequence[str]) -> Tensors:
        """Return flat tensors to be filled piece by piece."""
        sizes = {name: int(np.prod(self.shapes[name], dtype=np.int64)) for name in names}
        return {name: np.zeros(sizes[name], self.dtypes[name]) for name in names}


def _blocks(piece: Piece, rows: Array) -> Iterator[tuple[Piece, Array]]:
    """Yield a piece in blocks, so that the temporaries of a computation stay small."""
    for start in range(0, rows.shape[1], BLOCK):
        stop = min(rows.shape[1], start + BLOCK)
        block = Piece(piece.name, piece.start + start, piece.start + stop)
        yield block, np.ascontiguousarray(rows[:, start:stop])


def is_statistic(name: str) -> bool:
    """Whether a tensor is a running statistic of batch normalisation."""
    return name.rpartition(".")[2] in STATISTICS
