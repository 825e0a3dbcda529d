"""Receive blobs into a cache: accept chunks, request missing ones, give up after some attempts."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgefed.errors import StorageError, WireError
from edgefed.wire.blobs import BlobCache
from edgefed.wire.chunk_staging import Staging, prune
from edgefed.wire.limits import WINDOW_REQUEST
from edgefed.wire.messages import Chunk, Need

IDLE = 1.0
RETRY = 5.0
MAX_RETRIES = 6


class Receiver:
    """The reception of one blob.

    Args:
        staging: takes its chunks; may hold some from a previous process.
        mode: ``broadcast`` or ``pull``.
        jitter: random numbers that spread the requests of a fleet.
    """

    def __init__(
        self, staging: Staging, mode: Literal["broadcast", "pull"], jitter: random.Random
    ) -> None:
        self.staging = staging
        self._mode = mode
        self._jitter = jitter
        self._retries = 0
        self._asked: set[int] = set()
        self._due = 0.0

    @property
    def due(self) -> float:
        """Monotonic second of the next call of ``ask``."""
        return self._due

    @property
    def failed(self) -> bool:
        """Whether every retry went unanswered."""
        return self._retries > MAX_RETRIES

    def begin(self, now: float) -> Need:
        """Return the first request."""
        # A broadcast repeats all chunks, so it pays off only where none are here
        if self._mode == "broadcast" and self.staging.received == 0:
            self._due = now + IDLE * (1 + self._jitter.random())
            return Need(digest=self.staging.digest, first=True)
        return self._pull(now)

    def reconnected(self, now: float) -> Need:
        """Return the request to make after the connection was lost: nothing asked for counts."""
        self._retries = 0
        return self.begin(now)

    def take(self, number: int, data: bytes, now: float) -> Need | None:
        """Write a chunk and return the next request, if it is time for one."""
        self.staging.write(number, data)
        # Any chunk shows that the source is there
        self._retries = 0
        self._asked.discard(number)
        if self.staging.complete:
            return None
        if self._mode == "pull" and not self._asked:
            return self._pull(now)
        self._due = now + (
            IDLE * (1 + self._jitter.random()) if self._mode == "broadcast" else RETRY
        )
        return None

    def ask(self, now: float) -> Need | None:
        """Return the request to make at ``due``, or None when there is nothing left to try."""
        # A broadcast that ended early is no request that went unanswered
        if self._mode == "pull" and self._asked:
            self._retries += 1
        if self.failed:
            return None
        return self._pull(now)

    def _pull(self, now: float) -> Need:
        self._mode = "pull"
        missing = self.staging.missing(WINDOW_REQUEST)
        self._asked = set(missing)
        wait = RETRY * 2**self._retries
        self._due = now + wait * (1 + 0.2 * self._jitter.random())
        return Need(digest=self.staging.digest, first=False, chunks=missing)


log = logging.getLogger(__name__)

MAX_WRONG_DIGESTS = 2


@dataclass
class _Incoming:
    receiver: Receiver
    source: str
    size: int
    mode: Literal["broadcast", "pull"]
    sync: bool
    wrong: int = 0


@dataclass(frozen=True)
class Ask:
    """A request to send, with its receiver."""

    source: str
    need: Need


class BlobIntake:
    """Receive blobs from others into a cache; owned by one thread.

    Args:
        cache: takes complete blobs.
        folder: for staging files, which outlive the process.
        jitter: random numbers for waiting times.
        in_memory: whether small blobs that need no ``sync`` are held in memory alone, until their
            last pin is removed (``BlobCache.hold``).

    Attributes:
        failures: blobs that never came.
        next_due: the monotonic second from which on ``due`` may have a request or a failure to
            return; ``math.inf`` for never.
    """

    def __init__(
        self, cache: BlobCache, folder: Path, jitter: random.Random, *, in_memory: bool = False
    ) -> None:
        self.cache = cache
        self._in_memory = in_memory
        self._folder = folder
        self._jitter = jitter
        self._incoming: dict[str, _Incoming] = {}
        self.failures: list[str] = []
        self.next_due = math.inf

    def fetch(
        self,
        source: str,
        digest: str,
        size: int,
        mode: Literal["broadcast", "pull"],
        now: float,
        *,
        sync: bool = True,
    ) -> Ask | None:
        """Begin to receive a blob and return the request to send; None if it is held or coming.

        If an earlier process left all of its chunks, the cache holds it at once.

        Args:
            source: the device or coordinator that holds it.
            digest: its name.
            size: its bytes.
            mode: whether others receive it too.
            now: the monotonic second.
            sync: whether to wait for the disk once it is whole; False for one that can be fetched
                again.
        """
        if digest in self._incoming or self.cache.has(digest):
            return None
        receiver = self._receiver(digest, size, mode)
        incoming = self._incoming[digest] = _Incoming(receiver, source, size, mode, sync)
        if receiver.staging.complete:
            return self._finish(digest, incoming, now)
        return self._ask(incoming, receiver.begin(now))

    def chunk(self, chunk: Chunk, now: float) -> Ask | None:
        """Take a chunk; return the next request, if any. Chunks of other blobs are ignored."""
        digest = chunk.digest
        incoming = self._incoming.get(digest)
        if incoming is None:
            return None
        try:
            need = incoming.receiver.take(chunk.index, chunk.data, now)
        except WireError as error:
            # It stays missing, and is requested again when its time has come
            log.warning("chunk %d of blob %s refused: %s", chunk.index, digest[:12], error.message)
            return None
        if incoming.receiver.staging.complete:
            return self._finish(digest, incoming, now)
        return self._ask(incoming, need)

    def due(self, now: float) -> list[Ask]:
        """Return the requests whose time has come; blobs that never came go to ``failures``."""
        asks: list[Ask] = []
        for digest, incoming in list(self._incoming.items()):
            if incoming.receiver.due > now:
                continue
            need = incoming.receiver.ask(now)
            if need is not None:
                asks.append(Ask(incoming.source, need))
            elif incoming.receiver.failed:
                self.drop(digest)
                self.failures.append(digest)
        self._plan()
        return asks

    def reconnected(self, now: float) -> list[Ask]:
        """Return the requests to make after the connection was lost."""
        asks = [
            Ask(incoming.source, incoming.receiver.reconnected(now))
            for incoming in self._incoming.values()
        ]
        self._plan()
        return asks

    def coming(self, digest: str) -> bool:
        """Whether a blob is on its way."""
        return digest in self._incoming

    def fraction(self, digest: str) -> float:
        """Return the share of a blob that is here."""
        if self.cache.has(digest):
            return 1.0
        incoming = self._incoming.get(digest)
        return incoming.receiver.staging.fraction if incoming else 0.0

    def drop(self, digest: str) -> None:
        """Stop receiving a blob; its chunks stay on disk for a later attempt."""
        incoming = self._incoming.get(digest)
        if incoming is not None:
            self._forget(digest)
            incoming.receiver.staging.close()

    def prune(self, keep: Collection[str] = ()) -> None:
        """Delete the chunks of blobs that are neither on their way nor in ``keep``."""
        try:
            prune(self._folder, {*self._incoming, *keep})
        except StorageError as error:
            log.warning("%s", error.message)

    def close(self) -> None:
        """Stop receiving everything."""
        for digest in list(self._incoming):
            self.drop(digest)

    def _receiver(self, digest: str, size: int, mode: Literal["broadcast", "pull"]) -> Receiver:
        return Receiver(Staging(self._folder, digest, size), mode, self._jitter)

    def _finish(self, digest: str, incoming: _Incoming, now: float) -> Ask | None:
        try:
            incoming.receiver.staging.move_to(
                self.cache, sync=incoming.sync, in_memory=self._in_memory
            )
        except WireError:
            incoming.wrong += 1
            log.warning("blob %s came with a wrong digest", digest[:12])
            if incoming.wrong > MAX_WRONG_DIGESTS:
                self._fail(digest)
                return None
            # The staging begins from nothing, and asks its source alone
            incoming.receiver = self._receiver(digest, incoming.size, "pull")
            return self._ask(incoming, incoming.receiver.begin(now))
        except StorageError:
            self._fail(digest)  # its receiver has to begin again
            raise
        self._forget(digest)
        return None

    def _ask(self, incoming: _Incoming, need: Need | None) -> Ask | None:
        """Return the request to send, if any, after which its blob may be due before all others."""
        self.next_due = min(self.next_due, incoming.receiver.due)
        return Ask(incoming.source, need) if need else None

    def _plan(self) -> None:
        dues = (incoming.receiver.due for incoming in self._incoming.values())
        self.next_due = min(dues, default=math.inf)

    def _forget(self, digest: str) -> None:
        del self._incoming[digest]
        if not self._incoming and not self.failures:
            self.next_due = math.inf

    def _fail(self, digest: str) -> None:
        self.failures.append(digest)
        self._forget(digest)
        self.next_due = 0.0
