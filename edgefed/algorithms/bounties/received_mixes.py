"""Mixes that a device received: kept across runs, and checked before they are stored.

A blob from another device holds ``mixes`` uint8 (n, …), ``labels`` int64 (n,) and ``token``, the
ASCII letters of the batch of bounties that it answers. Device state holds ``PROVIDER/mixes``,
``PROVIDER/labels`` and ``PROVIDER/digests`` (SHA-256 of the blobs) in a group whose name identifies
the classes and settings for which they were made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from edgefed.errors import WireError
from edgefed.learn.base.types import Array, Tensors
from edgefed.sharing.label_mixes import MixSettings
from edgefed.wire.tensors import TensorSpec, pack, unpack

MOST_BYTES = 240 * 1024**2
"""Of the mixes that a device keeps, with their labels; less than its state, and than a blob, may
take."""

_PREFIX = "mixes-"


def most_mixes(shape: Sequence[int], nbytes: int = MOST_BYTES) -> int:
    """Return how many mixes of inputs of a shape take so many bytes at most."""
    return nbytes // _bytes_each(shape)


def group_name(
    classes: int, class_names: Sequence[str], shape: Sequence[int], settings: MixSettings
) -> str:
    """Return the name of the group that mixes for these classes and settings are in."""
    text = json.dumps([classes, list(class_names), list(shape), asdict(settings)], sort_keys=True)
    return f"{_PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def pack_mixes(mixes: Array, labels: Array, token: str) -> bytes:
    """Return the blob of mixes uint8 (n, …) with their labels int64 (n,)."""
    letters = np.frombuffer(token.encode("ascii"), np.uint8)
    return pack({"mixes": mixes, "labels": labels, "token": letters})


def blob_size(mixes: int, shape: Sequence[int], token: str) -> int:
    """Return the bytes of a blob of so many mixes of inputs of a shape."""
    labels = np.zeros(0, np.int64)
    empty = pack_mixes(np.zeros((0, *shape), np.uint8), labels, token)
    # The header says the lengths in a few digits more.
    return len(empty) + mixes * _bytes_each(shape) + 64


def unpack_mixes(
    blob: bytes, shape: Sequence[int], token: str, counts: Mapping[int, int]
) -> tuple[Array, Array]:
    """Return mixes and labels of a blob that another device sent.

    Args:
        blob: as it arrived.
        shape: of one input of this device.
        token: of the batch of bounties that it should answer.
        counts: the most mixes of each label.

    Raises:
        WireError: ``mix.forged``: it answers another batch, or holds other labels, more mixes or
            mixes of another shape.
    """
    arrays = unpack(blob, None, max_bytes=len(blob))
    if set(arrays) != {"mixes", "labels", "token"}:
        raise _refused("it does not hold mixes, labels and a token")
    mixes, labels, letters = arrays["mixes"], arrays["labels"], arrays["token"]
    if letters.dtype != np.uint8 or letters.tobytes() != token.encode("ascii"):
        raise _refused("it answers other bounties")
    if labels.dtype != np.int64 or labels.ndim != 1 or not len(labels):
        raise _refused("its labels are no list of numbers")
    spec = TensorSpec("uint8", (len(labels), *shape))
    if mixes.dtype != np.uint8 or mixes.shape != spec.shape:
        raise _refused(f"its mixes are not {spec.shape[1:]} pixels each, one for each label")
    for label, number in zip(*np.unique(labels, return_counts=True), strict=True):
        if number > counts.get(int(label), 0):
            raise _refused(f"it holds {number} mixes of label {label}, which were not asked for")
    return mixes, labels


def held(kept: Mapping[str, Array], classes: int) -> Array:
    """Return how many mixes of each label are kept: int64 (classes,)."""
    counts = np.zeros(classes, np.int64)
    for provider in providers(kept):
        counts += np.bincount(kept[f"{provider}/labels"], minlength=classes)[:classes]
    return counts


def added(
    kept: Mapping[str, Array], provider: str, blob: bytes, mixes: Array, labels: Array
) -> Tensors:
    """Return the stored mixes with those of a provider added; its earlier ones come first.

    A blob that was stored before, as when its receipt was lost, adds nothing.
    """
    digest = np.frombuffer(hashlib.sha256(blob).digest(), np.uint8)[None]
    known = kept.get(f"{provider}/digests", digest[:0])
    arrays = dict(kept)
    if not (known == digest).all(axis=1).any():
        for part, new in (("mixes", mixes), ("labels", labels), ("digests", digest)):
            name = f"{provider}/{part}"
            arrays[name] = np.concatenate([arrays[name], new]) if name in arrays else new
    return {name: arrays[name] for name in sorted(arrays)}


def replaced(groups: Mapping[str, Tensors], name: str, kept: Tensors) -> dict[str, Tensors]:
    """Return the changes of a device's state when ``kept`` replaces a group of mixes.

    Mixes for other classes or settings are deleted where all of them would take too much space.
    """
    changes = {name: kept} if kept else {}
    room = MOST_BYTES - _bytes_of(kept)
    for other in sorted(set(groups) - {name}):
        if other.startswith(_PREFIX):
            room -= _bytes_of(groups[other])
            if room < 0:
                changes[other] = {}
    return changes


def fingerprint(kept: Mapping[str, Array]) -> str:
    """Return a word that differs for different mixes."""
    digests = (array for name, array in kept.items() if name.endswith("/digests"))
    return hashlib.sha256(b"".join(digest.tobytes() for digest in digests)).hexdigest()


def of_label(kept: Mapping[str, Array], label: int) -> Array:
    """Return the mixes of a label, ordered by their provider's id: uint8 (n, …).

    Raises:
        ValueError: no mixes are kept.
    """
    parts = [
        kept[f"{provider}/mixes"][kept[f"{provider}/labels"] == label]
        for provider in providers(kept)
    ]
    return np.concatenate(parts)


def providers(kept: Mapping[str, Array]) -> list[str]:
    """Return the senders of stored mixes, sorted."""
    return sorted({name.rpartition("/")[0] for name in kept})


def _bytes_each(shape: Sequence[int]) -> int:
    return int(np.prod(shape)) + np.dtype(np.int64).itemsize


def _bytes_of(arrays: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in arrays.values())


def _refused(why: str) -> WireError:
    return WireError(f"Mixes of another device are refused: {why}.", code="mix.forged")
