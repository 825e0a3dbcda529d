"""Staging: an incoming blob on disk, chunk by chunk, which survives a restart of the process.

A map beside the data has one byte for each chunk, written after the chunk's data. If the process is
killed, a chunk may be requested again, but an incomplete one is never trusted. After a power cut
the two files may disagree; the digest of the whole blob then detects it. A blob of one chunk has no
files: it is whole as soon as there is anything to keep.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

from edgefed.errors import WireError
from edgefed.files.writing import make_folder, open_private, storage_error
from edgefed.wire import limits
from edgefed.wire.blobs import MAX_RECENT_BLOB, BlobCache, check_digest, chunk_count, chunk_span
from edgefed.wire.tensors import digest as digest_of

_DATA = ".staging"
_MAP = ".map"
_HERE = b"\x01"


class Staging:
    """One incoming blob; opening it resumes the transfer of an earlier process.

    One thread writes; others may read the counts.

    Args:
        folder: where the two files are, if it has several chunks.
        digest: the blob's name.
        size: its number of bytes.

    Raises:
        WireError: ``wire.digest`` or ``wire.too_large`` for a name or size that no blob has.
        StorageError: the files cannot be made.
    """

    def __init__(self, folder: Path, digest: str, size: int) -> None:
        if not 0 < size <= limits.MAX_BLOB_BYTES:
            raise WireError(f"A blob cannot have {size} bytes.", code="wire.too_large")
        self.digest = check_digest(digest)
        self.size = size
        self.count = chunk_count(size)
        self._only: bytes | None = None
        self._data_path = folder / f"{digest}{_DATA}"
        self._map_path = folder / f"{digest}{_MAP}"
        self._here = bytearray(self.count)
        self._received = 0
        self._files: tuple[BinaryIO, BinaryIO] | None = None
        if self.count == 1:
            return
        make_folder(folder)
        try:
            self._files = self._open()
        except OSError as error:
            raise storage_error(self._data_path, error) from error

    @property
    def received(self) -> int:
        """Number of chunks that are here."""
        return self._received

    @property
    def fraction(self) -> float:
        """Share of the chunks that are here."""
        return self._received / self.count

    @property
    def complete(self) -> bool:
        """Whether every chunk is here."""
        return self._received == self.count

    def write(self, index: int, data: bytes) -> bool:
        """Keep a chunk; False when it was here already.

        Raises:
            WireError: ``wire.chunk`` when the blob has no such chunk, or it has another length.
            StorageError: the disk is full; the chunk counts as missing.
        """
        start, length = chunk_span(self.size, index)
        if len(data) != length:
            raise WireError(
                f"Chunk {index} has {len(data)} bytes instead of {length}.", code="wire.chunk"
            )
        if self._here[index]:
            return False
        if self._files is None:
            self._only = data
        else:
            try:
                _write_at(self._files[0], start, data)
                _write_at(self._files[1], index, _HERE)
            except OSError as error:
                raise storage_error(self._data_path, error) from error
        self._here[index] = 1
        self._received += 1
        return True

    def missing(self, limit: int) -> tuple[int, ...]:
        """Return the first ``limit`` chunks that are not here."""
        numbers: list[int] = []
        index = self._here.find(0)
        while index >= 0 and len(numbers) < limit:
            numbers.append(index)
            index = self._here.find(0, index + 1)
        return tuple(numbers)

    def finish(self) -> bytes:
        """Return the blob and delete the files.

        Raises:
            WireError: ``wire.incomplete`` while chunks are missing; ``wire.digest`` when the bytes
                are not the blob's, and then the files are gone too, so that a new ``Staging``
                begins from nothing.
            StorageError: the data cannot be read back.
        """
        if not self.complete:
            raise WireError(
                f"A blob has {self._received} of its {self.count} chunks.", code="wire.incomplete"
            )
        data = self._whole()
        # Before the digest is compared, so that wrong bytes are never resumed
        self.drop()
        if digest_of(data) != self.digest:
            raise _wrong_digest(self.digest)
        return data

    def move_to(self, cache: BlobCache, *, sync: bool = True, in_memory: bool = False) -> None:
        """Put the blob into a cache; the file of a large one is moved there, not read as a whole.

        Args:
            cache: takes the blob.
            sync: as of ``BlobCache.put``.
            in_memory: whether a small one that needs no ``sync`` is held without a file.

        Raises:
            WireError: as of ``finish``.
            StorageError: the data cannot be read back, or the cache does not take them.
        """
        if self.size <= MAX_RECENT_BLOB or not self.complete:
            data = self.finish()
            if in_memory and not sync:
                cache.hold(self.digest, data)
            else:
                cache.put(data, sync=sync)
        elif self._file_digest() != self.digest:
            self.drop()
            raise _wrong_digest(self.digest)
        else:
            cache.adopt(self._data_path, self.digest, self.size, sync=sync)
            # Of the two files, only the map is left
            self.drop()

    def _file_digest(self) -> str:
        assert self._files is not None
        sha, file = hashlib.sha256(), self._files[0]
        try:
            file.seek(0)
            while piece := file.read(limits.CHUNK_BYTES):
                sha.update(piece)
        except OSError as error:
            raise storage_error(self._data_path, error) from error
        return sha.hexdigest()

    def _whole(self) -> bytes:
        if self._files is None:
            assert self._only is not None
            return self._only
        try:
            self._files[0].seek(0)
            return self._files[0].read()
        except OSError as error:
            raise storage_error(self._data_path, error) from error

    def close(self) -> None:
        """Close the files and leave them for a later ``Staging`` of the same blob."""
        for file in self._files or ():
            file.close()

    def drop(self) -> None:
        """Close and delete the files."""
        self.close()
        if self._files is not None:
            _delete(self._map_path)
            _delete(self._data_path)

    def _open(self) -> tuple[BinaryIO, BinaryIO]:
        """Open both files, taking over the parts that fit the blob's size."""
        if self._resumable():
            marks = self._map_path.read_bytes()
            # Any other byte is damage, and its chunk counts as missing
            self._here = bytearray(1 if mark == 1 else 0 for mark in marks)
            self._received = self._here.count(1)
        else:
            # The map goes first: without it, half-made data is never trusted.
            self._map_path.unlink(missing_ok=True)
            _make(self._data_path, self.size)
            _make(self._map_path, self.count)
        data = self._data_path.open("r+b", buffering=0)
        try:
            return data, self._map_path.open("r+b", buffering=0)
        except OSError:
            data.close()
            raise

    def _resumable(self) -> bool:
        """Return whether both files are there and of the right size."""
        try:
            return (
                self._data_path.stat().st_size == self.size
                and self._map_path.stat().st_size == self.count
            )
        except FileNotFoundError:
            return False


def prune(folder: Path, keep: Collection[str]) -> None:
    """Delete the staging files of blobs other than ``keep``, which are no longer needed.

    Raises:
        StorageError: a file cannot be deleted.
    """
    # Maps first, since data without a map are never trusted
    for path in sorted(folder.glob(f"*{_MAP}")) + sorted(folder.glob(f"*{_DATA}")):
        if path.stem not in keep:
            _delete(path)


def _wrong_digest(digest: str) -> WireError:
    return WireError(
        f"The bytes received for blob {digest[:12]} do not match its digest.",
        code="wire.digest",
        hint="it is requested again; if this repeats, check the network and the disk",
    )


def _make(path: Path, size: int) -> None:
    """Create a file of ``size`` zeros, which take no space until they are written."""
    with open_private(path, "wb") as file:
        file.truncate(size)


def _write_at(file: BinaryIO, start: int, data: bytes) -> None:
    """Write all of ``data`` at an offset of an unbuffered file, which may take it in parts."""
    file.seek(start)
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _delete(path: Path) -> None:
    """Delete a file, if it is there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error
