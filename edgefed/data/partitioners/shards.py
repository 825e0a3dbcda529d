"""Sort the samples by label, cut them into equal pieces, and give each device some pieces.

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS
2017: 100 devices with two pieces each.
"""

from __future__ import annotations

import numpy as np

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts, too_few


def shards(
    labels: Indices, devices: int, shards_per_device: int, rng: np.random.Generator
) -> Parts:
    """Return one part for each device; pieces differ in size by at most one sample.

    Args:
        labels: (n,) integers.
        devices: number of parts.
        shards_per_device: pieces in each part.
        rng: draws the pieces of each device; the pieces themselves follow from the labels' order.

    Raises:
        DataError: there are more pieces than samples.
    """
    pieces = devices * shards_per_device
    if pieces > len(labels):
        raise too_few(
            f"{len(labels)} samples cannot be cut into {pieces} shards.",
            hint="use fewer devices, or fewer shards_per_device",
        )
    cut = np.array_split(np.argsort(labels, kind="stable"), pieces)
    owners = rng.permutation(pieces).reshape(devices, shards_per_device)
    return tuple(rng.permutation(np.concatenate([cut[piece] for piece in row])) for row in owners)
