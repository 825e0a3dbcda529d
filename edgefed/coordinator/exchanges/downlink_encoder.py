"""Encode payloads to devices as differences from the payloads that they already hold.

For each payload name the coordinator keeps a mirror: the arrays that devices hold if they received
every exchange. A lossy payload w_t is sent as an encoded difference from the mirror b,

    c_t = C(w_t - b_{t-1})        b_t = b_{t-1} + C^{-1}(c_t)

so the encoding error of one round is part of the next difference: error feedback without separate
memory. The first difference is from zeros; of a sparse codec, b_0 is the rounded w_0. The reference
names b_t by its digest, with the last differences for devices that missed some rounds. For devices
that missed more, it also has exact patches straight to b_t, from the versions that the devices
asked were sent last, and from zeros. All of them lead to the same bits.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from edgefed.algorithms.interface.exchange import Payload
from edgefed.coordinator.exchanges.held_versions import HeldVersions
from edgefed.errors import StorageError
from edgefed.files.mapped import release
from edgefed.learn.base.types import Tensors
from edgefed.seeds import generator
from edgefed.wire.blobs import BlobCache
from edgefed.wire.codecs import CODECS, decode
from edgefed.wire.exact_patches import encode_exact, rounded
from edgefed.wire.message_parts import BlobRef, Patch
from edgefed.wire.patch_assembly import route
from edgefed.wire.patches import apply_patch
from edgefed.wire.tensors import digest as digest_of
from edgefed.wire.tensors import pack, specs_of, unpack, weights_digest

log = logging.getLogger(__name__)

CHAIN = 4
"""Differences in a reference, where devices are asked in every round."""

MOST_CHAIN = 16
"""Most of them in buffered rounds; each takes about 100 bytes of a task."""


MOST_DIRECT = 8
"""Most exact patches to one version; each takes the time to encode a model once."""


class DownlinkEncoder:
    """Encodes payloads of one run into blobs of a cache.

    Args:
        codec: the recipe's downlink codec, for payloads that name none.
        cache: stores the blobs; those that devices may still request are pinned.
        refs: references by payload name, from ``to_json`` of a previous process.
        chain: differences in a reference; a device that missed fewer rounds needs no whole payload.
        held: the references of open questions, whose blobs stay as well (``hold``).
    """

    def __init__(
        self,
        codec: str,
        cache: BlobCache,
        refs: Mapping[str, Any] | None = None,
        chain: int = CHAIN,
        held: Iterable[BlobRef] = (),
    ) -> None:
        self._chain = chain
        self._held = _digests(held)
        self._codec = codec
        self._cache = cache
        self._refs = {
            name: BlobRef.model_validate_json(entry["ref"]) for name, entry in (refs or {}).items()
        }
        self._sources = {name: str(entry["source"]) for name, entry in (refs or {}).items()}
        # An earlier release noted no versions.
        self._versions = {
            name: HeldVersions(entry.get("held", ())) for name, entry in (refs or {}).items()
        }
        self._tried: dict[str, set[str | None]] = {}
        self._pinned: set[str] = set()
        self._superseded: set[str] = set()
        # The last arrays sent under each name: the very same ones need no digest to be known.
        self._sent: dict[str, Tensors] = {}
        self._pin()

    def to_json(self) -> dict[str, Any]:
        """Return the references, to be written down with the exchange that uses them."""
        return {
            name: {
                "ref": ref.model_dump_json(),
                "source": self._sources[name],
                "held": self._versions[name].to_json(),
            }
            for name, ref in self._refs.items()
        }

    def send(
        self, name: str, payload: Payload, seed: int, devices: Collection[str] = ()
    ) -> BlobRef:
        """Put a payload's blobs into the cache and return the reference for devices.

        A payload that has not changed since it was last sent keeps its reference and costs nothing,
        unless the cache lost its blobs or ``devices`` hold other versions.

        Args:
            name: of the payload.
            payload: the arrays, and their codec if they have one of their own.
            seed: gives the draws of stochastic rounding.
            devices: that the reference is for; it has the patches that these need.
        """
        self._encode(name, payload, seed)
        self._offer(name, devices)
        return self._refs[name]

    def for_device(self, ref: BlobRef, name: str, device: str) -> BlobRef:
        """Return a payload's reference without the exact patches for other devices."""
        bases = (None, self._versions[name].of(device))
        # None is from zeros: a device may have lost the version that it was sent
        direct = tuple(patch for patch in ref.direct if patch.base in bases)
        return ref.model_copy(update={"direct": direct})

    def asked(self, name: str, devices: Iterable[str]) -> None:
        """Note that devices are sent the current version of a payload."""
        ref = self._refs[name]
        self._versions[name].note(ref.digest, ref.size, devices)
        self._pin()

    def _encode(self, name: str, payload: Payload, seed: int) -> None:
        """Make a payload's current version, unless it is the last one."""
        codec = payload.codec or self._codec
        held = self._holds(name, codec)
        if held and self._sent.get(name) is payload.arrays:
            return
        self._sent.pop(name, None)  # its memory, before that of the next payload is needed
        source = weights_digest(payload.arrays)
        for array in payload.arrays.values():
            release(array)
        if held and self._sources[name] == source:
            self._sent[name] = payload.arrays
            return
        # Whole weights lead to the same bits whatever devices hold, so no mirror is needed
        if codec == "fp32":
            ref = self._whole(payload.arrays)
        else:
            ref = self._difference(name, payload.arrays, codec, seed)
        for array in payload.arrays.values():
            release(array)
        # After the blobs are written: a retry after a full disk must encode them again.
        self._refs[name] = ref
        self._sources[name] = source
        self._sent[name] = payload.arrays
        self._versions.setdefault(name, HeldVersions())
        self._tried[name] = set()
        self._pin()

    def _offer(self, name: str, devices: Collection[str]) -> None:
        """Add exact patches from what devices hold, most devices first, where they are smaller."""
        ref, tried = self._refs[name], self._tried.setdefault(name, set())
        # The patch that helps most devices comes first, since their number is bounded
        bases = Counter(map(self._versions[name].of, devices))
        codes: dict[str | None, bytes] = {}
        target = cache(partial(self._arrays, ref.digest))  # read once, and only if it is needed
        for base, _ in bases.most_common():
            if len(ref.direct) + len(codes) == MOST_DIRECT or base in (*tried, ref.digest):
                continue
            if code := self._exact(ref, base, target):
                codes[base] = code
        if codes:
            # Pinned before they are put: a full cache could push one out for the next
            new = [Patch(base=b, blob=digest_of(c), size=len(c)) for b, c in codes.items()]
            for digest in {patch.blob for patch in new} - self._pinned:
                self._cache.pin(digest)
                self._pinned.add(digest)
            self._cache.put_all(list(codes.values()))
            self._refs[name] = ref.model_copy(update={"direct": (*ref.direct, *new)})
        # Also those without a patch: for this version the answer stays the same
        self._tried[name] |= bases.keys()

    def _exact(self, ref: BlobRef, base: str | None, arrays: Callable[[], Tensors | None]) -> bytes:
        """Return an exact patch; empty when the other ways from ``base`` are not larger."""
        way = route(ref, (base,).__contains__)
        # The last difference alone is smaller than an exact patch over the same step.
        if len(way.patches) == 1:
            return b""
        target = arrays()
        before = None if base is None else self._arrays(base)
        if target is None or (base is not None and before is None):
            return b""
        # An exact patch goes entry by entry, so both versions must have the same arrays
        if before is not None and specs_of(before) != specs_of(target):
            return b""
        code = encode_exact(before, target)
        # A patch pays off only where it is smaller than all that the other way fetches
        return code if len(code) < sum(size for _, size in way.fetch) else b""

    def retire(self, names: Iterable[str]) -> None:
        """Forget the mirrors of names that are no longer sent; unpin their blobs."""
        for name in names:
            self._refs.pop(name, None)
            self._sources.pop(name, None)
            self._sent.pop(name, None)
            self._versions.pop(name, None)
        self._pin()

    def hold(self, refs: Iterable[BlobRef]) -> None:
        """Keep the blobs of these references too, in place of those held before."""
        self._held = _digests(refs)
        self._pin()

    def committed(self) -> None:
        """Delete the blobs that devices no longer need, after a commit without an open exchange.

        Before that, a restart would begin with the blobs of the last commit. Without this call they
        would stay until the cache is full.
        """
        # What is not deleted stays until the cache evicts it; the run goes on
        try:
            for digest in self._superseded:
                self._cache.discard(digest)
        except StorageError as error:
            log.warning("%s", error.message)
        self._superseded.clear()

    def losses(self) -> list[str]:
        """Return a message for each payload whose mirror is no longer in the cache."""
        return [
            f"the blob cache lost {name}; devices are sent it anew, and with a lossy downlink"
            " the run ends in other bits than undisturbed"
            for name, ref in self._refs.items()
            if not self._cache.has(ref.digest)
        ]

    def _holds(self, name: str, codec: str) -> bool:
        """Whether the cache holds the arrays last sent to devices under a name.

        Raises:
            StorageError: it is damaged, and could not be made again to the same bits.
        """
        if name not in self._refs:
            return False
        digest = self._refs[name].digest
        there = self._cache.has(digest)
        held = self._cache.intact(digest)
        # An absent mirror is known to be lost; a damaged one may still be restored from a backup
        if there and not held and codec != "fp32":
            raise StorageError(
                f"Blob {digest[:12]}, which devices hold as {name}, is damaged in the blob cache.",
                code="storage.damaged",
                hint="restore it from a backup before you restart the coordinator; without it,"
                " edgefed run resume sends the weights again, with different bits",
            )
        return held

    def release(self) -> None:
        """Unpin everything; the run is over."""
        for digest in self._pinned:
            self._cache.unpin(digest)
        self._pinned.clear()

    def _whole(self, arrays: Tensors) -> BlobRef:
        packed = pack(arrays)
        return BlobRef(digest=self._keep(packed), size=len(packed))

    def _difference(self, name: str, arrays: Tensors, codec: str, seed: int) -> BlobRef:
        before = self._refs.get(name)
        base = self._mirror(before, arrays)
        # A sparse code of whole weights would drop most of them: b_0 is whole, and only rounded
        if base is None and CODECS[codec].coder.sparse:
            return self._whole(rounded(arrays))
        rng = generator(seed, "downlink", name)
        code = CODECS[codec].encode(arrays if base is None else _minus(arrays, base), rng)
        # The mirror is what devices decode, not w_t: the error is part of the next difference
        packed = pack(apply_patch(base, decode(code, specs_of(arrays)), in_place=True))
        patch = Patch(
            base=before.digest if base is not None and before is not None else None,
            blob=self._keep(code),
            size=len(code),
        )
        # Older differences lead to the base, so they are of use only while the chain is unbroken
        older = before.patches[: self._chain - 1] if base is not None and before is not None else ()
        return BlobRef(digest=self._keep(packed), size=len(packed), patches=(patch, *older))

    def _mirror(self, ref: BlobRef | None, arrays: Tensors) -> Tensors | None:
        """Return the devices' arrays under a name, or None if they do not fit ``arrays``."""
        held = self._arrays(ref.digest) if ref is not None else None
        return held if held is not None and specs_of(held) == specs_of(arrays) else None

    def _arrays(self, digest: str) -> Tensors | None:
        """Return the arrays of a version, or None when the cache has lost them."""
        data = self._cache.get(digest)
        return None if data is None else unpack(data, None, max_bytes=len(data))

    def _keep(self, data: bytes) -> str:
        """Put a blob into the cache, pinned before the next one could push it out."""
        digest = self._cache.put(data)
        if digest not in self._pinned:
            self._cache.pin(digest)
            self._pinned.add(digest)
        return digest

    def _pin(self) -> None:
        wanted = _digests(self._refs.values()) | self._held
        for versions in self._versions.values():
            wanted.update(versions)
        for digest in wanted - self._pinned:
            self._cache.pin(digest)
        for digest in self._pinned - wanted:
            self._cache.unpin(digest)
            self._superseded.add(digest)
        self._pinned = wanted


def _digests(refs: Iterable[BlobRef]) -> set[str]:
    """Return the digests of all blobs that devices may request for these references."""
    return {digest for ref in refs for digest in ref.blobs}


def _minus(arrays: Tensors, base: Tensors) -> Tensors:
    """Return the difference of float arrays; others travel as they are."""
    return {
        name: np.subtract(array, base[name]) if np.issubdtype(array.dtype, np.floating) else array
        for name, array in arrays.items()
    }
