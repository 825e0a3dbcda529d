"""Divide a number among several takers, equally, each up to its own limit."""

from __future__ import annotations

from collections.abc import Sequence


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
        each = max(1, left // len(open_ones))
        for place in open_ones[: max(1, left // each)]:
            given = min(each, limits[place] - shares[place], left)
            shares[place] += given
            left -= given
    return shares
