"""One device for each writer or role, with all samples of that writer or role.

FEMNIST and Shakespeare of LEAF (Caldas et al., 2018).
"""

from __future__ import annotations

import numpy as np

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts, too_few


def natural(
    groups: Indices,
    devices: int,
    rng: np.random.Generator,
    *,
    min_samples: int = 10,
    merge: bool = False,
) -> Parts:
    """Return one part for each device.

    Args:
        groups: (n,) integers, the origin of each sample.
        devices: number of parts.
        rng: draws which groups become devices, and the samples' order.
        min_samples: fewest samples of a group that is dealt out; smaller ones are in no part.
        merge: deal all groups out, in near-equal numbers, instead of one to a device.

    Raises:
        DataError: fewer groups of that size than devices.
    """
    present, counts = np.unique(groups, return_counts=True)
    large = present[counts >= min_samples]
    if len(large) < devices:
        raise too_few(
            f"{len(large)} of {len(present)} writers or roles have at least {min_samples} samples,"
            f" for {devices} devices.",
            hint="lower min_samples, or use fewer devices",
        )
    dealt = rng.permutation(large)
    owned = np.array_split(dealt if merge else dealt[:devices], devices)
    return tuple(rng.permutation(np.flatnonzero(np.isin(groups, chosen))) for chosen in owned)
