"""Each device draws its labels independently; each sample goes to a random holder of its label.

Sizes differ by construction. The split ``disjoint_random`` of Flower's FedMix baseline.
"""

from __future__ import annotations

import numpy as np

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts, too_few
from edgefed.data.partitioners.holders import held_labels, random_table


def disjoint_random(
    labels: Indices, devices: int, classes_per_device: int, rng: np.random.Generator
) -> Parts:
    """Return one part for each device: disjoint, and together all samples.

    Args:
        labels: (n,) integers.
        devices: number of parts.
        classes_per_device: most labels in a part.
        rng: draws the labels, and the device of each sample.

    Raises:
        DataError: fewer labels than a device is to hold, or fewer places than labels.
    """
    present = held_labels(labels, classes_per_device)
    if devices * classes_per_device < len(present):
        raise too_few(
            f"{devices} devices of {classes_per_device} labels cannot hold all {len(present)}.",
            hint="use more devices or classes_per_device",
        )
    table = covering_table(devices, classes_per_device, len(present), rng)
    owner = np.empty(len(labels), np.int64)
    for position, label in enumerate(present):
        holders = np.flatnonzero((table == position).any(axis=1))
        samples = np.flatnonzero(labels == label)
        owner[samples] = rng.choice(holders, size=len(samples))
    return tuple(rng.permutation(np.flatnonzero(owner == device)) for device in range(devices))


def covering_table(
    devices: int, classes_per_device: int, classes: int, rng: np.random.Generator
) -> Indices:
    """Return (devices, classes_per_device): no label twice in a row, every label in some row.

    A label that no device drew takes a random place of a label with several holders. There are
    enough places, so such a label always exists.
    """
    table = random_table(devices, classes_per_device, classes, rng)
    for missing in np.setdiff1d(np.arange(classes), table):
        uses = np.bincount(table.ravel(), minlength=classes)
        places = np.argwhere(uses[table] > 1)
        row, place = places[rng.integers(len(places))]
        table[row, place] = missing
    return table
