"""Which samples of a device's data are held out, while the data grow: decided by their content.

A sample that comes later is held out if its digest is below the share, so that neither its place
nor its time matters, and the same photo is held out on every device. The first split has as many
samples of each label as that of ``hold_out``; a record keeps those that their digests would place
otherwise. Of equal samples, as many stay held out as were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edgefed.data.base.holdout import held_out_positions, lowest_held_out
from edgefed.data.base.types import Array, take
from edgefed.files.samples import Samples, stored
from edgefed.seeds import generator

Keys = npt.NDArray[np.uint64]
"""Of samples: digests, (n,)."""

_STEP = np.uint64(0x9E3779B97F4A7C15)
"""Between the keys of equal samples."""


def _no_keys() -> Keys:
    return np.zeros(0, np.uint64)


@dataclass(frozen=True, eq=False)
class GrowingSplit:
    """A split of samples that came, and of those that will.

    Attributes:
        share: of the samples that is held out.
        held, trained: keys of the first samples whose part differs from that of their digest.
    """

    share: float
    held: Keys
    trained: Keys

    def parts(self, samples: Samples, class_names: Sequence[str] = ()) -> tuple[Samples, Samples]:
        """Return (train, test), in the original order; one sample is left for training."""
        keys = _distinct(sample_keys(samples, class_names))
        test = (_below(keys, self.share) | np.isin(keys, self.held)) & ~np.isin(keys, self.trained)
        if test.all():
            test[np.argmax(keys)] = False
        return take(samples, np.flatnonzero(~test)), take(samples, np.flatnonzero(test))


def first_split(
    samples: Samples, class_names: Sequence[str], share: float, *, by_order: bool
) -> GrowingSplit:
    """Return the split that a device begins with.

    Args:
        samples: with labels or numeric targets.
        class_names: of the labels.
        share: of the samples to hold out, in [0, 1), in proportion to the labels.
        by_order: whether to choose them by their places, as earlier versions did; otherwise those
            with the lowest keys are held out.
    """
    keys = _distinct(sample_keys(samples, class_names))
    if by_order:
        rng = generator(0, "data", "device", "holdout")
        _, positions = held_out_positions(samples.targets, share, rng)
    else:
        positions = lowest_held_out(samples.targets, share, keys)
    test = np.zeros(len(keys), bool)
    test[positions] = True
    below = _below(keys, share)
    return GrowingSplit(share, keys[test & ~below], keys[below & ~test])


def sample_keys(samples: Samples, class_names: Sequence[str]) -> Keys:
    """Return the digest of each sample: its input, its target, by name if it has one, and columns.

    Equal samples have equal keys.
    """
    targets: Iterable[bytes]
    if class_names and samples.has_labels:
        targets = (class_names[label].encode() for label in samples.targets)
    else:
        targets = (row.tobytes() for row in samples.targets)
    columns: list[Array] = [samples.columns[name] for name in sorted(samples.columns)]
    beside = np.stack(columns, axis=1) if columns else np.zeros((len(samples), 0), np.int64)
    images = stored(samples.inputs)
    inputs = _digests(row.tobytes() for row in samples.inputs) if images is None else images.digests
    whole = zip(inputs, beside, targets, strict=True)
    return _digests(b"".join((key.tobytes(), row.tobytes(), t)) for key, row, t in whole)


def _digests(texts: Iterable[bytes]) -> Keys:
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _distinct(digests: Keys) -> Keys:
    """Return digests of which those that repeat an earlier one have another value each."""
    _, first, counts = np.unique(digests, return_inverse=True, return_counts=True)
    if len(counts) == len(digests):
        return digests
    order = np.argsort(first, kind="stable")
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    repeats = np.zeros(len(digests), np.uint64)
    repeats[order] = np.arange(len(digests)) - starts
    return digests + repeats * _STEP


def _below(keys: Keys, share: float) -> npt.NDArray[np.bool_]:
    return keys < np.uint64(int(share * 2**64))
