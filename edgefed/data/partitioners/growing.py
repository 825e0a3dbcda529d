"""More devices of the same size: Dirichlet label skew over a part of the samples.

The samples are divided at random into ``pieces``; `edgefed.data.partitioners.dirichlet` partitions
the first ``pieces_used`` of them. FedMA's ``hetero-fbs`` (Wang et al., ICLR 2020) keeps a
device's size near s with pieces_used · floor(n / s / pieces) devices.
"""

from __future__ import annotations

import numpy as np

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts, too_few
from edgefed.data.partitioners.dirichlet import dirichlet


def growing(
    labels: Indices,
    devices: int,
    alpha: float,
    rng: np.random.Generator,
    *,
    pieces: int,
    pieces_used: int,
    min_samples: int = 10,
    balance: bool = True,
) -> Parts:
    """Return one part for each device; the samples of the pieces not used are in none.

    Args:
        labels: (n,) integers.
        devices: how many parts.
        alpha: as of `dirichlet`.
        rng: draws pieces, proportions and samples.
        pieces: how many near-equal pieces the samples are cut into.
        pieces_used: how many of them are shared out.
        min_samples: as of `dirichlet`.
        balance: as of `dirichlet`.

    Raises:
        DataError: more pieces are used than there are, or as `dirichlet`.
    """
    if pieces_used > pieces:
        raise too_few(
            f"The partition uses {pieces_used} pieces, but there are {pieces}.",
            hint=f"set pieces_used to at most {pieces}",
        )
    cut = np.array_split(rng.permutation(len(labels)), pieces)
    used = np.concatenate(cut[:pieces_used])
    inner = dirichlet(labels[used], devices, alpha, rng, min_samples=min_samples, balance=balance)
    return tuple(used[part] for part in inner)
