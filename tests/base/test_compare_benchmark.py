"""The comparison of two checkouts: ratios pair by pair."""

from __future__ import annotations

from benchmarks.compare import summary


def test_the_ratio_is_the_median_of_the_pairs_own_ratios() -> None:
    """A machine that slows down for both sides of a pair changes no ratio."""
    pairs = [({"s": 1.0}, {"s": 1.1}), ({"s": 10.0}, {"s": 11.0}), ({"s": 2.0}, {"s": 8.0})]
    (row,) = summary(pairs)
    assert row == {
        "figure": "s",
        "before": 2.0,
        "after": 8.0,
        "ratio": 1.1,
        "least": 1.1,
        "most": 4.0,
    }
