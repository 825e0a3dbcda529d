"""Device i holds label i modulo the number of labels, and others at random.

The partition ``#label`` of NIID-Bench (Li et al., Federated Learning on Non-IID Data Silos, ICDE
2022). Devices of the same labels have near-equal parts, but some labels have more holders.
"""

from __future__ import annotations

import numpy as np

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts
from edgefed.data.partitioners.holders import held_labels, share_out


def niid_label(
    labels: Indices, devices: int, classes_per_device: int, rng: np.random.Generator
) -> Parts:
    """Return one part for each device, of ``classes_per_device`` different labels.

    With fewer devices than labels some labels may have no holder; their samples are in no part.

    Args:
        labels: (n,) integers.
        devices: number of parts.
        classes_per_device: different labels in each part.
        rng: draws the further labels, and which samples a holder gets.

    Raises:
        DataError: fewer labels than a device is to hold, or a label with fewer samples than
            holders.
    """
    classes = len(held_labels(labels, classes_per_device))
    rows = []
    for device in range(devices):
        first = device % classes
        others = np.setdiff1d(np.arange(classes), [first])
        drawn = rng.choice(others, size=classes_per_device - 1, replace=False)
        rows.append([first, *drawn.tolist()])
    return share_out(labels, np.array(rows, np.int64), rng)
