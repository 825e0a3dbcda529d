"""Obtain the bytes of a blob reference: choose the blobs to fetch, and apply patches.

A reference names bytes by digest and may list patches, newest first: patch 0 converts its base to
the target, patch 1 converts an older base to that base, and so on. A receiver that holds any base
of the chain fetches only the newer patches. Direct patches convert zeros or an older base to the
target. All ways lead to the same bytes, which the digest proves; a receiver takes the one with the
fewest bytes to fetch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgefed.errors import WireError
from edgefed.wire.codecs import decode
from edgefed.wire.exact_patches import apply_exact, is_exact
from edgefed.wire.message_parts import BlobRef, Patch
from edgefed.wire.patches import apply_patch
from edgefed.wire.tensors import TensorSpec, digest, pack, specs_of, unpack


@dataclass(frozen=True)
class Route:
    """The cheapest way to a blob from the blobs that are held.

    Attributes:
        patches: to apply, oldest first; empty when the whole blob is held or fetched.
        fetch: digest and size of each blob to fetch.
    """

    patches: tuple[Patch, ...]
    fetch: tuple[tuple[str, int], ...]


def route(ref: BlobRef, holds: Callable[[str], bool], *, whole: bool = False) -> Route:
    """Return the cheapest way to ``ref``; with ``whole``, do not trust its patches."""
    if holds(ref.digest):
        return Route((), ())
    ways = [Route((), ((ref.digest, ref.size),))]
    if not whole:
        ways += [_way((patch,), holds) for patch in ref.direct if _starts(patch, holds)]
        first = next((n for n, patch in enumerate(ref.patches) if _starts(patch, holds)), None)
        if first is not None:
            # Listed newest first, and applied oldest first
            ways.append(_way(ref.patches[first::-1], holds))
    # Of ways with equal bytes, the one with the fewest patches
    return min(ways, key=lambda way: (sum(size for _, size in way.fetch), len(way.patches)))


def _starts(patch: Patch, holds: Callable[[str], bool]) -> bool:
    """Whether a patch can be applied to what is held."""
    return patch.base is None or holds(patch.base)


def _way(patches: tuple[Patch, ...], holds: Callable[[str], bool]) -> Route:
    """Return the way over patches, oldest first."""
    return Route(patches, tuple((p.blob, p.size) for p in patches if not holds(p.blob)))


def assemble(
    ref: BlobRef, way: Route, get: Callable[[str], bytes], specs: dict[str, TensorSpec] | None
) -> bytes:
    """Return the bytes that ``ref`` names.

    Args:
        ref: the name.
        way: the route that ``route`` returned; its blobs are held.
        get: bytes of a held blob.
        specs: expected dtype and shape of each tensor, where known.

    Raises:
        WireError: a patch does not fit, or the result has another digest.
    """
    if not way.patches:
        return get(ref.digest)
    first = way.patches[0].base
    arrays = None if first is None else unpack(get(first), specs, max_bytes=ref.size)
    for patch in way.patches:
        blob = get(patch.blob)
        known = specs_of(arrays) if arrays is not None else specs
        if is_exact(blob):
            arrays = apply_exact(blob, arrays, known, max_bytes=ref.size)
            continue
        change = decode(blob, known, max_bytes=2 * ref.size)
        arrays = apply_patch(arrays, change, in_place=True)
        # Its memory, before the next patch is decoded
        del change
    packed = pack(arrays or {})
    if digest(packed) != ref.digest:
        raise WireError(f"The patches do not produce blob {ref.digest[:12]}.", code="wire.digest")
    return packed
