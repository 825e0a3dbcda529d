"""Send devices the blobs that they lack: by broadcast to several, or directly to one.

Requests that say "I hold none of it" are collected until all devices that were asked have
responded, or for a short time; then the blob is broadcast once. A request for single chunks is
answered to its sender only, and so is every request for a blob that another device sent to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from edgefed.transport.sender import ChunkSender
from edgefed.wire.blobs import BlobCache, chunk_count, chunk_span
from edgefed.wire.messages import Need
from edgefed.wire.topics import Topics

GATHER = 0.15
"""Longest wait for others, in seconds, before a blob is broadcast."""


@dataclass
class _Gathering:
    since: float
    devices: set[str] = field(default_factory=set)


class BlobDistributor:
    """Answers devices' needs from a cache; owned by one thread.

    Args:
        cache: where the blobs are.
        sender: sends chunks.
        topics: of the fleet.
    """

    def __init__(self, cache: BlobCache, sender: ChunkSender, topics: Topics) -> None:
        self._cache = cache
        self._sender = sender
        self._topics = topics
        self._gatherings: dict[str, _Gathering] = {}
        self.delivered = 0

    def take(
        self, device: str, need: Need, expected: int, now: float, *, private: bool = False
    ) -> None:
        """Take a device's request for a blob that it may have.

        Args:
            device: the sender.
            need: its request.
            expected: number of devices that may need the same blob.
            now: the monotonic second.
            private: whether the blob is for this device alone, and so is never broadcast.
        """
        size = self._cache.size(need.digest)
        if size is None:
            return
        if private or not need.first:
            numbers = range(chunk_count(size)) if need.first else need.chunks
            self._send_chunks(device, need.digest, size, numbers)
            return
        gathering = self._gatherings.setdefault(need.digest, _Gathering(now))
        gathering.devices.add(device)
        if len(gathering.devices) >= expected:
            self._flush(need.digest)

    def due(self, now: float) -> None:
        """Broadcast the blobs whose requests were collected long enough."""
        for digest, gathering in list(self._gatherings.items()):
            if now - gathering.since >= GATHER:
                self._flush(digest)

    def next_due(self) -> float | None:
        """Return the monotonic second of the next ``due``, or None."""
        return min(
            (gathering.since + GATHER for gathering in self._gatherings.values()), default=None
        )

    def _flush(self, digest: str) -> None:
        gathering = self._gatherings.pop(digest)
        size = self._cache.size(digest)
        if size is None:
            return
        devices = gathering.devices
        self.delivered += size * len(devices)
        if len(devices) == 1:
            self._send_to(next(iter(devices)), digest, range(chunk_count(size)))
        else:
            self._send(self._topics.broadcast_chunk(digest), digest, range(chunk_count(size)))

    def _send_chunks(self, device: str, digest: str, size: int, asked: Iterable[int]) -> None:
        numbers = [number for number in asked if number < chunk_count(size)]
        self.delivered += sum(chunk_span(size, number)[1] for number in numbers)
        self._send_to(device, digest, numbers)

    def _send_to(self, device: str, digest: str, numbers: Iterable[int]) -> None:
        self._send(self._topics.down_chunk(device), digest, numbers)

    def _send(self, topic: str, digest: str, numbers: Iterable[int]) -> None:
        """Queue chunks; each is read when it is its turn, so a fleet's transfers need no memory."""
        self._sender.send(topic, digest, lambda number: self._cache.chunk(digest, number), numbers)
