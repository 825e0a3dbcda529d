"""Each device holds c random labels, and each label has equally many holders.

Label skew as in FedMix (Yoon et al., ICLR 2021): every device has a few labels. If the labels have
nearly equal numbers of samples, so have the devices.
"""

from __future__ import annotations

import numpy as np

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts
from edgefed.data.partitioners.holders import held_labels, share_out


def balanced(
    labels: Indices, devices: int, classes_per_device: int, rng: np.random.Generator
) -> Parts:
    """Return one part for each device, of ``classes_per_device`` different labels.

    With fewer places than labels (devices · classes_per_device below the number of labels) some
    labels have no holder; their samples are in no part.

    Args:
        labels: (n,) integers.
        devices: number of parts.
        classes_per_device: different labels in each part.
        rng: draws the table, and which samples a holder gets.

    Raises:
        DataError: fewer labels than a device is to hold, or a label with fewer samples than
            holders.
    """
    present = held_labels(labels, classes_per_device)
    return share_out(labels, holder_table(devices, classes_per_device, len(present), rng), rng)


def holder_table(
    devices: int, classes_per_device: int, classes: int, rng: np.random.Generator
) -> Indices:
    """Return the labels of each device: (devices, classes_per_device), no label twice in a row.

    Every label occurs devices · classes_per_device / classes times in the table; if that is not a
    whole number, labels drawn at random occur once more.
    """
    places = devices * classes_per_device
    uses = np.full(classes, places // classes)
    uses[rng.choice(classes, size=places % classes, replace=False)] += 1
    multiset = rng.permutation(np.repeat(np.arange(classes), uses))
    table: Indices = multiset.reshape(devices, classes_per_device)
    for row in table:
        for place in range(classes_per_device):
            while row[place] in row[:place]:
                _swap_out(table, row, place, rng)
    return table


def _swap_out(table: Indices, row: Indices, place: int, rng: np.random.Generator) -> None:
    """Swap the duplicate at ``row[place]`` with a label of a row that lacks it.

    Each swap lowers the number of duplicates in the table. A row that lacks the label always has
    a fitting one to give: either one of its labels is not in ``row``, which has at most c - 2
    others, or one of its own occurs twice.
    """
    label = row[place]
    other = table[rng.choice(np.flatnonzero(~(table == label).any(axis=1)))]
    twice = (other[:, None] == other[None, :]).sum(axis=1) > 1
    slot = rng.choice(np.flatnonzero(~np.isin(other, row) | twice))
    row[place], other[slot] = other[slot], label
