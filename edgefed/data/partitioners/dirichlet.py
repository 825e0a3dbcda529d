"""Dirichlet label skew: the samples of each label are divided in random proportions.

For each label p ~ Dir(α, …, α) over the devices. PFNM (Yurochkin et al., ICML 2019), FedMA (Wang et
al., ICLR 2020), NIID-Bench. Unlike the papers, their code also skips devices that already have
their equal share: ``balance``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts
from edgefed.data.partitioners.draws import check_minimum, cuts, draws, given_up


def dirichlet(
    labels: Indices,
    devices: int,
    alpha: float,
    rng: np.random.Generator,
    *,
    min_samples: int = 10,
    balance: bool = True,
) -> Parts:
    """Return one part for each device; their sizes differ.

    Args:
        labels: (n,) integers.
        devices: number of parts.
        alpha: concentration of each device's component; smaller is more skewed.
        rng: draws proportions and samples.
        min_samples: fewest samples in a part; draws are repeated until all have them.
        balance: give no further label to a device that has n / devices samples.

    Raises:
        DataError: no draw gave every device ``min_samples``.
    """
    check_minimum(len(labels), devices, min_samples)
    present, counts = np.unique(labels, return_counts=True)
    tries = draws(len(present), devices)
    for _ in range(tries):
        proportions = rng.dirichlet(np.full(devices, alpha), size=len(present))
        ends = _ends(proportions, counts, balance)
        if ends is not None and _sizes(ends, counts).min() >= min_samples:
            return _parts(labels, present, ends, rng)
    raise given_up(tries, alpha, devices, min_samples)


def _ends(
    proportions: npt.NDArray[np.float64], counts: Indices, balance: bool
) -> list[Indices] | None:
    """Return where each label's samples are cut, or None where no device was left to take one.

    The samples themselves are drawn only once the sizes will do.
    """
    devices = proportions.shape[1]
    share = counts.sum() / devices
    sizes = np.zeros(devices, np.int64)
    all_ends = []
    for row, count in zip(proportions, counts, strict=True):
        ends = cuts(np.where(sizes >= share, 0, row) if balance else row, int(count))
        if ends is None:
            return None
        all_ends.append(ends)
        sizes += np.diff(ends, prepend=0, append=count)
    return all_ends


def _sizes(all_ends: list[Indices], counts: Indices) -> Indices:
    pieces = [
        np.diff(ends, prepend=0, append=count) for ends, count in zip(all_ends, counts, strict=True)
    ]
    sizes: Indices = np.sum(pieces, axis=0)
    return sizes


def _parts(
    labels: Indices, present: Indices, all_ends: list[Indices], rng: np.random.Generator
) -> Parts:
    shuffled = [rng.permutation(np.flatnonzero(labels == label)) for label in present]
    by_label = [np.split(order, ends) for order, ends in zip(shuffled, all_ends, strict=True)]
    return tuple(rng.permutation(np.concatenate(pieces)) for pieces in zip(*by_label, strict=True))
