"""Blobs: immutable bytes named by their digest, split into chunks, kept in a bounded cache."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edgefed.errors import WireError
from edgefed.files.writing import make_folder, remove_partial_files, storage_error, write_atomic
from edgefed.wire import limits
from edgefed.wire.tensors import digest as digest_of

_DIGEST = re.compile(r"[0-9a-f]{64}")

_WRITERS = 16
"""Most threads that write blobs at the same time."""

MAX_BLOBS = 65_536
"""Most blobs of a cache, of any size: the index of so many takes 24 MB of memory. A cohort of
10,000 devices may send several each."""

RECENT_BYTES = 4 * 1024 * 1024
"""Most bytes of a cache that are also in memory. A reply is read a moment after it is written;
reading five small files took a millisecond of a round with four devices."""

MAX_RECENT_BLOB = 256 * 1024
"""Most bytes of a blob that is also in memory."""

UNWRITTEN_BYTES = 64 * 1024 * 1024
"""Most bytes of the blobs that are in memory alone; further ones are written to files."""


def chunk_count(size: int) -> int:
    """Return how many chunks a blob of ``size`` bytes has."""
    return -(-size // limits.CHUNK_BYTES)


def chunk_span(size: int, index: int) -> tuple[int, int]:
    """Return where chunk ``index`` of a blob of ``size`` bytes begins and how long it is.

    Raises:
        WireError: ``wire.chunk`` when the blob has no such chunk.
    """
    if not 0 <= index < chunk_count(size):
        raise WireError(f"A blob of {size} bytes has no chunk {index}.", code="wire.chunk")
    start = index * limits.CHUNK_BYTES
    return start, min(limits.CHUNK_BYTES, size - start)


def chunk(data: bytes, index: int) -> bytes:
    """Return chunk ``index`` of a blob.

    Raises:
        WireError: ``wire.chunk`` when the blob has no such chunk.
    """
    start, length = chunk_span(len(data), index)
    return data[start : start + length]


def check_digest(digest: str) -> str:
    """Return ``digest`` if it is one, and therefore safe as the name of a file.

    Raises:
        WireError: ``wire.digest`` when it is not.
    """
    if not _DIGEST.fullmatch(digest):
        raise WireError(f"{digest[:80]!r} is not a digest.", code="wire.digest")
    return digest


class BlobCache:
    """Blobs on disk, oldest unused out first; several threads may use it.

    A blob's file is named by its digest. Files of an earlier process are indexed in the order of
    their last use. Each is checked against its digest when it is first read.

    Args:
        folder: of the files; no other program should put files there.
        limit_bytes: most bytes of the files. Pinned blobs, and the one put last, are kept even when
            they alone take more.
        pinned: digests to pin from the start, before anything is evicted.
        limit_blobs: most blobs; pinned ones and the last likewise stay.

    Raises:
        StorageError: the folder cannot be made or read.
    """

    def __init__(
        self,
        folder: Path,
        limit_bytes: int,
        pinned: Iterable[str] = (),
        *,
        limit_blobs: int = MAX_BLOBS,
    ) -> None:
        self._folder = make_folder(folder)
        self._limit = limit_bytes
        self._limit_blobs = limit_blobs
        self._total = 0
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()  # least recently used first
        self._checked: set[str] = set()
        self._recent: OrderedDict[str, bytes] = OrderedDict()  # first put first
        self._recent_bytes = 0
        self._unwritten: dict[str, bytes] = {}
        self._unwritten_bytes = 0
        self._pins: Counter[str] = Counter(pinned)
        self._take_over()

    def __len__(self) -> int:
        return len(self._sizes)

    def put(self, data: bytes, *, sync: bool = True) -> str:
        """Keep a blob and return its digest.

        Args:
            data: the blob.
            sync: whether to wait for the disk; False for a blob that its sender has too.

        Raises:
            StorageError: the disk is full or the folder cannot be written.
        """
        digest = digest_of(data)
        with self._lock:
            known = digest in self._checked and digest not in self._unwritten
            # Somebody may have deleted the file
            if known and (self._touch(digest) or self._path(digest).exists()):
                return digest
            self._make_room(len(data), digest)
        while True:
            write_atomic(self._path(digest), data, sync=sync)  # no lock: it waits for the disk
            with self._lock:
                # Another thread may have put the same blob meanwhile, and a third one evicted it.
                if self._path(digest).exists():
                    self._forget_unwritten(digest)
                    self._note(digest, len(data))
                    self._checked.add(digest)
                    self._remember(digest, data)
                    self._make_room(0, digest)
                    return digest

    def hold(self, digest: str, data: bytes) -> None:
        """Keep a blob until its last pin is removed, in memory alone if it is small.

        A file for each of a thousand replies costs more than everything else with them. It is
        written, as ``put`` does without waiting, if too many others are held already.

        Args:
            digest: its name, with which the caller has compared it.
            data: the blob, which its sender keeps too.

        Raises:
            StorageError: as of ``put``.
        """
        with self._lock:
            if digest in self._checked:
                return
            fits = self._unwritten_bytes + len(data) <= UNWRITTEN_BYTES
            # Only while it is pinned, as the removal of the last pin ends it, and without a file
            new = digest not in self._sizes
            if new and fits and len(data) <= MAX_RECENT_BLOB and self._pins.get(digest):
                self._make_room(len(data), digest)
                self._unwritten[digest] = data
                self._unwritten_bytes += len(data)
                self._note(digest, len(data))
                self._checked.add(digest)
                return
        self.put(data, sync=False)

    def adopt(self, path: Path, digest: str, size: int, *, sync: bool = True) -> None:
        """Keep the blob in a file, which is moved here; its bytes were checked to be the blob's.

        Args:
            path: on the file system of the cache; private to this user.
            digest: of the blob.
            size: of the blob.
            sync: as of ``put``.

        Raises:
            StorageError: the file cannot be moved, and stays where it is.
        """
        try:
            if sync:
                # Before it gets its name, so that a power cut leaves no name without its bytes
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            with self._lock:
                path.replace(self._path(digest))
                self._note(digest, size)
                self._checked.add(digest)
                self._make_room(0, digest)
        except OSError as error:
            raise storage_error(path, error) from error

    def put_all(self, blobs: Collection[bytes]) -> None:
        """Keep several blobs, and wait for the disk only about as long as for one.

        Raises:
            StorageError: as of ``put``; some of them may be kept.
        """
        if len(blobs) == 1:
            self.put(*blobs)
        elif blobs:
            # The disk takes waits that overlap together, and others one after another.
            with ThreadPoolExecutor(min(len(blobs), _WRITERS)) as writers:
                deque(writers.map(self.put, blobs), maxlen=0)

    def get(self, digest: str) -> bytes | None:
        """Return a blob, or None when it is not here; a damaged file is dropped.

        Raises:
            StorageError: the file is there and cannot be read.
        """
        with self._lock:
            if digest not in self._sizes:
                return None
            if digest in self._unwritten:
                return self._unwritten[digest]
            checked = digest in self._checked
            if self._touch(digest) and digest in self._recent:
                return self._recent[digest]
        try:
            data = self._path(digest).read_bytes()
        except FileNotFoundError:
            self._drop_lost(digest)
            return None
        except OSError as error:
            raise storage_error(self._path(digest), error) from error
        if not checked and digest_of(data) != digest:
            self._drop_damaged(digest)
            return None
        with self._lock:
            # It may have been dropped while it was read
            if digest in self._sizes:
                self._checked.add(digest)
        return data

    def intact(self, digest: str) -> bool:
        """Whether a blob is here whole; read only if it was not yet. A damaged one is dropped."""
        with self._lock:
            if digest in self._checked:
                return True
        return self.get(digest) is not None

    def chunk(self, digest: str, index: int) -> bytes | None:
        """Return one chunk of a blob without reading the rest, or None when it is not here.

        Raises:
            WireError: ``wire.chunk`` when the blob has no such chunk.
            StorageError: the file is there and cannot be read.
        """
        # A file of an earlier process is read as a whole once, to compare it with its digest
        if digest not in self._checked or digest in self._recent or digest in self._unwritten:
            data = self.get(digest)
            return None if data is None else chunk(data, index)
        size = self.size(digest)
        if size is None:
            return None
        start, length = chunk_span(size, index)
        try:
            with self._path(digest).open("rb") as file:
                file.seek(start)
                return file.read(length)
        except FileNotFoundError:
            self._drop_lost(digest)
            return None
        except OSError as error:
            raise storage_error(self._path(digest), error) from error

    def has(self, digest: str) -> bool:
        """Return whether a blob is here."""
        with self._lock:
            return digest in self._sizes

    def size(self, digest: str) -> int | None:
        """Return a blob's number of bytes, or None when it is not here."""
        with self._lock:
            return self._sizes.get(digest)

    @property
    def total(self) -> int:
        """Bytes that all blobs take."""
        with self._lock:
            return self._total

    def pin(self, digest: str) -> None:
        """Keep a blob, now or once it is put, until it is unpinned as often as it was pinned."""
        with self._lock:
            self._pins[check_digest(digest)] += 1

    def unpin(self, digest: str) -> None:
        """Remove one pin; without pins the blob may be evicted, and one without a file is gone."""
        with self._lock:
            if self._pins[digest] > 1:
                self._pins[digest] -= 1
            else:
                del self._pins[digest]
                if digest in self._unwritten:
                    self._drop(digest)
            self._make_room(0, "")

    def remove(self, digest: str) -> None:
        """Delete a blob, pinned or not."""
        with self._lock:
            self._drop(digest)

    def discard(self, digest: str) -> None:
        """Delete a blob that is no longer needed, unless it is pinned."""
        with self._lock:
            if not self._pins.get(digest):
                self._drop(digest)

    def shed(self, keep: Collection[str] = ()) -> int:
        """Delete all blobs that are neither pinned nor in ``keep``; return their bytes."""
        with self._lock:
            before = self._total
            for digest in list(self._sizes):
                if not self._pins.get(digest) and digest not in keep:
                    self._drop(digest)
            return before - self._total

    def clear(self) -> None:
        """Delete every blob; pins stay."""
        with self._lock:
            for digest in list(self._sizes):
                self._drop(digest)

    def _take_over(self) -> None:
        """Index the files of an earlier process, and delete its half-written ones."""
        files: list[tuple[int, str, int]] = []
        try:
            remove_partial_files(self._folder)
            for path in self._folder.iterdir():
                if _DIGEST.fullmatch(path.name):
                    status = path.stat()
                    files.append((status.st_mtime_ns, path.name, status.st_size))
        except OSError as error:
            raise storage_error(self._folder, error) from error
        for _, digest, size in sorted(files):
            self._note(digest, size)
        self._make_room(0, "")

    def _note(self, digest: str, size: int) -> None:
        """Note that a blob is here, and was used now."""
        self._total += size - self._sizes.get(digest, 0)
        self._sizes[digest] = size
        self._sizes.move_to_end(digest)

    def _remember(self, digest: str, data: bytes) -> None:
        """Keep a small blob in memory, instead of those that were put first."""
        if len(data) > MAX_RECENT_BLOB or digest in self._recent:
            return
        self._recent[digest] = data
        self._recent_bytes += len(data)
        while self._recent_bytes > RECENT_BYTES:
            _, oldest = self._recent.popitem(last=False)
            self._recent_bytes -= len(oldest)

    def _touch(self, digest: str) -> bool:
        """Note that a blob was used, also for the next process; whether its file is there."""
        self._sizes.move_to_end(digest)
        try:
            os.utime(self._path(digest))
        except OSError:  # without this right only the order of eviction suffers
            return False
        return True

    def _make_room(self, size: int, keep: str) -> None:
        """Evict unpinned blobs other than ``keep`` until ``size`` more bytes fit."""
        if not self._is_over(size):
            return
        for digest in list(self._sizes):
            if digest != keep and not self._pins.get(digest):
                self._drop(digest)
                if not self._is_over(size):
                    return

    def _is_over(self, size: int) -> bool:
        """Whether ``size`` more bytes are too many, or there are too many blobs already."""
        return self._total + size > self._limit or len(self._sizes) > self._limit_blobs

    def _drop_lost(self, digest: str) -> None:
        """Forget a blob whose file somebody deleted, unless it was put again meanwhile."""
        with self._lock:
            if not self._path(digest).exists():
                self._drop(digest)

    def _drop_damaged(self, digest: str) -> None:
        """Delete a blob whose file does not fit its name, unless it was put again meanwhile."""
        with self._lock:
            if digest not in self._checked:
                self._drop(digest)

    def _drop(self, digest: str) -> None:
        """Delete a blob's file and forget it."""
        self._checked.discard(digest)
        self._recent_bytes -= len(self._recent.pop(digest, b""))
        size = self._sizes.pop(digest, None)
        if size is None:
            return
        self._total -= size
        if self._forget_unwritten(digest):
            return
        path = self._path(digest)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(path, error) from error

    def _forget_unwritten(self, digest: str) -> bool:
        """Drop the copy of a blob that has no file; whether there was one."""
        data = self._unwritten.pop(digest, None)
        self._unwritten_bytes -= len(data or b"")
        return data is not None

    def _path(self, digest: str) -> Path:
        return self._folder / digest
