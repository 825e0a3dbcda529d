"""Each device draws its labels independently, with an equal number of possibly shared samples.

Devices that drew the same label may hold the same samples. The split ``overlap`` of Flower's FedMix
baseline.
"""

from __future__ import annotations

import numpy as np

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts
from edgefed.data.partitioners.holders import held_labels, random_table


def overlap(
    labels: Indices,
    devices: int,
    classes_per_device: int,
    rng: np.random.Generator,
    samples: int = 0,
) -> Parts:
    """Return one part for each device; no sample is twice in one, but may be in several.

    Args:
        labels: (n,) integers.
        devices: number of parts, at most n.
        classes_per_device: different labels that a part is drawn from.
        rng: draws the labels, and the samples from all with one of them.
        samples: of a part, or all samples of its labels where those are fewer; 0 for n // devices.

    Raises:
        DataError: fewer labels than a device is to hold.
    """
    present = held_labels(labels, classes_per_device)
    table = random_table(devices, classes_per_device, len(present), rng)
    if samples:  # of hundred thousands of parts, none may take the time of all samples
        pools = {row: np.flatnonzero(np.isin(labels, present[list(row)])) for row in _rows(table)}
        return tuple(_drawn(pools[row], samples, rng) for row in _rows(table))
    size = len(labels) // devices
    return tuple(
        rng.permutation(np.flatnonzero(np.isin(labels, present[row])))[:size] for row in table
    )


def _rows(table: Indices) -> list[tuple[int, ...]]:
    """Return the rows, each in ascending order."""
    rows: list[list[int]] = np.sort(table).tolist()
    return [tuple(row) for row in rows]


def _drawn(pool: Indices, size: int, rng: np.random.Generator) -> Indices:
    drawn: Indices = rng.choice(pool, min(size, len(pool)), replace=False)
    return drawn
