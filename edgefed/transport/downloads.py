"""Fetch blobs from the coordinator: subscribe, request, and repeat the requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Mapping

from edgefed.transport.blob_intake import Ask, BlobIntake
from edgefed.transport.link import Link
from edgefed.wire.messages import Chunk, Need
from edgefed.wire.topics import Topics


class Downloads:
    """Fetches blobs from the coordinator into the cache; owned by one thread.

    None of them waits for the disk: one that a power cut damages is fetched again.

    Args:
        link: the connection.
        topics: of the fleet.
        intake: receives the chunks.
        ask: publishes a request.

    Attributes:
        intake: the same.
    """

    def __init__(
        self, link: Link, topics: Topics, intake: BlobIntake, ask: Callable[[Need], None]
    ) -> None:
        self._link = link
        self._topics = topics
        self.intake = intake
        self._ask = ask
        self._subscribing: dict[str, tuple[str, int]] = {}

    def want(self, blobs: Mapping[str, int]) -> None:
        """Subscribe to blobs, by digest and size; request each when its subscription holds."""
        for digest, size in blobs.items():
            topic_filter = self._topics.broadcast_chunk(digest)
            self._subscribing[topic_filter] = (digest, size)
            self._link.subscribe(topic_filter)

    def pull(self, blobs: Mapping[str, int], now: float) -> list[str]:
        """Request blobs that are for this device alone; return those whose chunks were all here."""
        for digest, size in blobs.items():
            self._send(self.intake.fetch("", digest, size, "pull", now, sync=False))
        return [digest for digest in blobs if self.intake.cache.has(digest)]

    def subscribed(self, topic_filter: str, wanted: Container[str], now: float) -> str:
        """Request the blob of a confirmed subscription; return its digest, empty if none."""
        digest, size = self._subscribing.pop(topic_filter, ("", 0))
        if not digest or digest not in wanted:
            return ""
        self._send(self.intake.fetch("", digest, size, "broadcast", now, sync=False))
        return digest

    def take(self, chunk: Chunk, now: float) -> None:
        """Take a chunk."""
        self._send(self.intake.chunk(chunk, now))

    def arrived(self, digest: str) -> bool:
        """Whether a blob is here; if so, its broadcast is unsubscribed."""
        if not self.intake.cache.has(digest):
            return False
        self._link.unsubscribe(self._topics.broadcast_chunk(digest))
        return True

    def drop(self, digests: Iterable[str]) -> None:
        """Give up blobs; their chunks stay for a later attempt."""
        for digest in digests:
            self.intake.drop(digest)
            self._link.unsubscribe(self._topics.broadcast_chunk(digest))

    def prune(self, keep: Collection[str]) -> None:
        """Delete the chunks of blobs that are no longer needed."""
        self.intake.prune(keep)

    def due(self, now: float) -> bool:
        """Repeat due requests; return whether a blob will never arrive."""
        for ask in self.intake.due(now):
            self._send(ask)
        failed = bool(self.intake.failures)
        self.intake.failures.clear()
        return failed

    def next_due(self) -> float | None:
        """Return the monotonic second of the next request, or None."""
        return None if self.intake.next_due == math.inf else self.intake.next_due

    def reconnected(self, now: float) -> None:
        """Repeat the requests for all incoming blobs."""
        for ask in self.intake.reconnected(now):
            self._send(ask)

    def close(self) -> None:
        """Stop receiving; chunks stay on disk."""
        self.intake.close()

    def _send(self, ask: Ask | None) -> None:
        if ask is not None:
            self._ask(ask.need)
