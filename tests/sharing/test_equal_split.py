"""Equal parts, each up to its own limit: by hand, and for any numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.sharing.groups import equal_split


@pytest.mark.parametrize(
    ("total", "limits", "shares"),
    [
        (0, [3, 3], [0, 0]),
        (5, [], []),
        (6, [3, 3, 3], [2, 2, 2]),
        (7, [9, 9, 9], [3, 2, 2]),
        (7, [1, 9, 9], [1, 3, 3]),
        (8, [1, 9, 9], [1, 4, 3]),
        (2, [5, 5, 5], [1, 1, 0]),
        (99, [1, 0, 4], [1, 0, 4]),
        (10**9, [10**9, 1], [10**9 - 1, 1]),
    ],
)
def test_by_hand(total: int, limits: list[int], shares: list[int]) -> None:
    assert equal_split(total, limits) == shares


@given(st.integers(0, 10_000), st.lists(st.integers(0, 2_000), max_size=30))
def test_nothing_is_lost_and_nobody_gets_more_than_its_limit(total: int, limits: list[int]) -> None:
    shares = equal_split(total, limits)
    assert sum(shares) == min(total, sum(limits))
    assert all(0 <= share <= limit for share, limit in zip(shares, limits, strict=True))
    below = [share for share, limit in zip(shares, limits, strict=True) if share < limit]
    assert below == sorted(below, reverse=True)
    if below:
        assert below[0] - below[-1] <= 1
        assert max(shares) <= below[-1] + 1
