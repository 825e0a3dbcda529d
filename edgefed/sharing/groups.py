"""Assign samples to random groups of at least a minimum size, to be averaged.

Yoon, Shin, Hwang, Yang: FedMix, ICLR 2021, section 3.2 and appendix J.

A number is also divided among several takers, equally, each up to its own limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from edgefed.files.samples import Samples
from edgefed.sharing.types import Indices


def equal_split(total: int, limits: Sequence[int]) -> list[int]:
    """Return the share of each taker; others get the rest that a limit leaves.

    The sum is ``min(total, sum(limits))``. Shares below their limits differ by 1 at most; of these
    the first takers get more.

    Args:
        total: to divide, at least 0.
        limits: of each taker, at least 0.
    """
    shares = [0] * len(limits)
    left = min(total, sum(limits))
    while left:
        open_ones = [place for place, limit in enumerate(limits) if shares[place] < limit]
        portion = max(1, left // len(open_ones))
        for place in open_ones[: max(1, left // portion)]:
            given = min(portion, limits[place] - shares[place], left)
            shares[place] += given
            left -= given
    return shares


def random_groups(count: int, size: int, rng: np.random.Generator) -> list[Indices]:
    """Return ``count`` samples, shuffled, in groups of ``size`` or a little more.

    A rest is spread over the groups, so that none is smaller than ``size``. Fewer samples than
    ``size`` form one group; no samples form none.

    Args:
        count: number of samples.
        size: M, at least 1; 0 for one group of all.
        rng: shuffles.
    """
    order = rng.permutation(count)
    number = max(1, count // size) if size else 1
    return np.array_split(order, number) if count else []


def class_groups(samples: Samples, size: int, rng: np.random.Generator) -> list[Indices]:
    """Return groups that hold samples of one label each: an experiment that shows their harm.

    Args:
        samples: with whole-number labels.
        size: as above, for each label; one with fewer samples has one group of them all.
        rng: shuffles.
    """
    return list(_class_groups(samples, size, rng))


def _class_groups(samples: Samples, size: int, rng: np.random.Generator) -> Iterator[Indices]:
    for label in np.unique(samples.targets):
        own = np.flatnonzero(samples.targets == label)
        yield from (own[group] for group in random_groups(len(own), size, rng))
