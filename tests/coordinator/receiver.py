"""A device's end of the downlink: holds blobs, fetches what it lacks, counts the bytes."""

from __future__ import annotations

from edgefed.learn.base.types import Tensors
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import BlobRef
from edgefed.wire.patch_assembly import assemble, route
from edgefed.wire.tensors import digest, specs_of


class Receiver:
    """Follows a downlink.

    Attributes:
        fetched: bytes that it had to fetch.
        patched: how many patches it applied.
    """

    def __init__(self, cache: BlobCache, like: Tensors) -> None:
        self._cache = cache
        self._specs = specs_of(like)
        self._held: dict[str, bytes] = {}
        self.fetched = 0
        self.patched = 0

    def receive(self, ref: BlobRef) -> bytes:
        """Return the blob that a reference names, and forget what is no longer needed."""
        way = route(ref, self._held.__contains__)
        for name, size in way.fetch:
            data = self._cache.get(name)
            assert data is not None, "what a reference names must be there"
            assert (digest(data), len(data)) == (name, size)
            self._held[name] = data
            self.fetched += size
        self.patched += len(way.patches)
        data = assemble(ref, way, self._held.__getitem__, self._specs)
        self._held = {ref.digest: data}
        return data
