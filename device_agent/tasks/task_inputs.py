"""The inputs of the current task: downloads of missing blobs, and the resulting arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field

from edgefed.errors import WireError
from edgefed.learn.base.types import Tensors
from edgefed.transport.blob_intake import Ask, BlobIntake
from edgefed.transport.link import Link
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import Chunk, Need, Task
from edgefed.wire.patch_assembly import Route, assemble, route
from edgefed.wire.topics import Topics
from edgefed.worker.worker import read_blob


class Downloads:
    """Fetches blobs from the coordinator into the cache; owned by one thread.

    Args:
        link: the connection.
        topics: of the fleet.
        intake: receives the chunks.
        ask: publishes a request.
    """

    def __init__(
        self, link: Link, topics: Topics, intake: BlobIntake, ask: Callable[[Need], None]
    ) -> None:
        self._link = link
        self._topics = topics
        self._intake = intake
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
            # One task needs it, which fetches it again if a power cut damages it.
            self._send(self._intake.fetch("", digest, size, "pull", now, sync=False))
        return [digest for digest in blobs if self._intake.cache.has(digest)]

    def subscribed(self, topic_filter: str, wanted: Container[str], now: float) -> str:
        """Request the blob of a confirmed subscription; return its digest, empty if none."""
        digest, size = self._subscribing.pop(topic_filter, ("", 0))
        if not digest or digest not in wanted:
            return ""
        self._send(self._intake.fetch("", digest, size, "broadcast", now))
        return digest

    def take(self, chunk: Chunk, now: float) -> None:
        """Take a chunk."""
        self._send(self._intake.chunk(chunk, now))

    def arrived(self, digest: str) -> bool:
        """Whether a blob is here; if so, its broadcast is unsubscribed."""
        if not self._intake.cache.has(digest):
            return False
        self._link.unsubscribe(self._topics.broadcast_chunk(digest))
        return True

    def drop(self, digests: Iterable[str]) -> None:
        """Give up blobs; their chunks stay for a later attempt."""
        for digest in digests:
            self._intake.drop(digest)
            self._link.unsubscribe(self._topics.broadcast_chunk(digest))

    def prune(self, keep: Collection[str]) -> None:
        """Delete the chunks of blobs that are no longer needed."""
        self._intake.prune(keep)

    def due(self, now: float) -> bool:
        """Repeat due requests; return whether a blob will never arrive."""
        for ask in self._intake.due(now):
            self._send(ask)
        failed = bool(self._intake.failures)
        self._intake.failures.clear()
        return failed

    def next_due(self) -> float | None:
        """Return the monotonic second of the next request, or None."""
        return self._intake.next_due()

    def reconnected(self, now: float) -> None:
        """Repeat the requests for all incoming blobs."""
        for ask in self._intake.reconnected(now):
            self._send(ask)

    def close(self) -> None:
        """Stop receiving; chunks stay on disk."""
        self._intake.close()

    def _send(self, ask: Ask | None) -> None:
        if ask is not None:
            self._ask(ask.need)


@dataclass
class TaskInputs:
    """One task, until its blobs are whole.

    Attributes:
        lacking: digests still to come, with their sizes.
        private: those that other devices sent to this one only.
    """

    task: Task
    cache: BlobCache
    lacking: dict[str, int] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    _routes: dict[str, Route] = field(default_factory=dict)
    _pinned: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for role in self.task.blobs:
            self._plan(role, whole=False)
        shared = {ref.digest for ref in self.task.blobs.values()} | self.lacking.keys()
        for relay in self.task.relays:
            if relay.digest not in shared | self.private:
                self._pin(relay.digest)
                self.private.add(relay.digest)
                if not self.cache.intact(relay.digest):
                    self.lacking[relay.digest] = relay.size

    @property
    def ready(self) -> bool:
        """Whether everything is here."""
        return not self.lacking

    def arrived(self, digest: str) -> None:
        """Note that a blob is in the cache."""
        self.lacking.pop(digest, None)

    def assemble(self) -> bool:
        """Make the named blobs from their patches; False when some must be fetched whole."""
        for role, ref in self.task.blobs.items():
            way = self._routes[role]
            if self.cache.has(ref.digest):
                continue
            try:
                self._keep(assemble(ref, way, self._get, None))
            except WireError:
                if not way.patches:
                    raise
                self._plan(role, whole=True)
        return self.ready

    def read(self, role: str) -> Tensors:
        """Return the arrays of a role."""
        return read_blob(self._get(self.task.blobs[role].digest))

    def read_relay(self, digest: str) -> bytes:
        """Return the bytes of a blob from another device."""
        return self._get(digest)

    def clear(self) -> None:
        """Unpin the blobs that only this task needed."""
        for digest in self._pinned:
            self.cache.unpin(digest)
        self._pinned.clear()

    def delete_private(self) -> None:
        """Delete the blobs from other devices."""
        for digest in self.private:
            self._pinned.remove(digest)
            self.cache.unpin(digest)
            self.cache.discard(digest)
        self.private.clear()

    def _plan(self, role: str, *, whole: bool) -> None:
        ref = self.task.blobs[role]
        way = route(ref, self.cache.has, whole=whole)
        self._routes[role] = way
        self.lacking.update(dict(way.fetch))
        bases = [patch.base for patch in way.patches if patch.base is not None]
        self._pin(ref.digest, *bases, *(patch.blob for patch in way.patches))

    def _pin(self, *digests: str) -> None:
        for digest in digests:
            self.cache.pin(digest)
            self._pinned.append(digest)

    def _keep(self, data: bytes) -> None:
        self.cache.put(data)

    def _get(self, digest: str) -> bytes:
        data = self.cache.get(digest)
        if data is None:
            raise WireError(f"Blob {digest[:12]} is not in the cache.", code="wire.blob")
        return data
