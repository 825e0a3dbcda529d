"""The inputs of the current task: the blobs that are missing, and the resulting arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgefed.errors import WireError
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import Task
from edgefed.wire.patch_assembly import Route, assemble, route
from edgefed.wire.tensors import unpack

if TYPE_CHECKING:  # an agent collects inputs without torch
    from edgefed.learn.base.types import Tensors


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

    def check(self) -> None:
        """Drop the blobs that are damaged on disk; reading one afterwards fails."""
        for digest in {ref.digest for ref in self.task.blobs.values()} | self.private:
            self.cache.intact(digest)

    def read(self, role: str) -> Tensors:
        """Return the arrays of a role."""
        data = self._get(self.task.blobs[role].digest)
        return unpack(data, None, max_bytes=len(data))

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
        self.cache.put(data, sync=False)  # made again if a power cut damages it

    def _get(self, digest: str) -> bytes:
        data = self.cache.get(digest)
        if data is None:
            raise WireError(f"Blob {digest[:12]} is not in the cache.", code="wire.blob")
        return data
