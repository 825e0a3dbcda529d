"""Ledger entries, and what the owner's budget still allows: by hand, and for any numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.sharing.bounty_report import Budget
from edgefed.sharing.label_mixes import MixSettings
from edgefed.sharing.mix_accounting import composed
from edgefed.sharing.policy import Policy
from edgefed.sharing.releases import (
    Spent,
    allowed_mixes,
    budget,
    labels_release,
    means_release,
    mixes_release,
    spent,
)

SETTINGS = MixSettings(width=3, others="other_classes", noise_scale=0.25)


def mixes(count: int, epsilon: float | None, receiver: str = "b") -> dict[str, Any]:
    return mixes_release(4, 100, receiver, {2: count}, SETTINGS, epsilon)


def test_an_entry_of_means_has_no_epsilon() -> None:
    assert means_release(3, 60, 4, 15, 0.5) == {
        "kind": "means",
        "round": 3,
        "records": 60,
        "noise_scale": 0.5,
        "epsilon": None,
        "formal": "none",
        "entries": 4,
        "group": 15,
        "hidden": False,
    }
    assert means_release(3, 60, 4, 15, 0.5, hidden=True)["hidden"] is True


def test_an_entry_of_label_counts_has_no_epsilon() -> None:
    assert labels_release(0, 60, 10) == {
        "kind": "labels",
        "round": 0,
        "records": 60,
        "noise_scale": 0.0,
        "epsilon": None,
        "formal": "none",
        "labels": 10,
    }


def test_an_entry_of_mixes_names_its_receiver_counts_and_settings() -> None:
    assert mixes_release(4, 100, "cam-2", {9: 1, 2: 5}, SETTINGS, 1.5) == {
        "kind": "mixes",
        "round": 4,
        "records": 100,
        "noise_scale": 0.25,
        "epsilon": 1.5,
        "formal": "epsilon",
        "receiver": "cam-2",
        "counts": {"2": 5, "9": 1},
        "width": 3,
        "others": "other_classes",
    }


@pytest.mark.parametrize("epsilon", [None, float("inf"), float("nan"), 1e300])
def test_without_a_finite_epsilon_mixes_are_formally_unbounded(epsilon: float | None) -> None:
    entry = mixes(5, epsilon)
    assert entry["epsilon"] is None
    assert entry["formal"] == "none"


@pytest.mark.parametrize(
    "entry", [means_release(3, 60, 4, 15, 0.5), labels_release(0, 60, 10), mixes(5, 1.5)]
)
def test_an_entry_is_the_same_after_it_was_stored(entry: dict[str, Any]) -> None:
    assert json.loads(json.dumps(entry, allow_nan=False)) == entry


def test_only_mixes_are_spent() -> None:
    ledger = [mixes(5, 0.25), means_release(1, 9, 1, 9, 0), labels_release(0, 9, 2), mixes(2, 1.0)]
    assert spent(ledger) == Spent(7, 1.25)
    assert spent([]) == Spent(0, 0.0)


def test_one_release_without_epsilon_leaves_none_for_all() -> None:
    assert spent([mixes(5, 0.25), mixes(1, None)]) == Spent(6, None)


@pytest.mark.parametrize(
    "foreign",
    [
        {},
        {"kind": "noise", "counts": {"1": 3}, "epsilon": 1.0},
        {"kind": "mixes"},
        {"kind": "mixes", "counts": {"1": 3}},
        {"kind": "mixes", "counts": 3, "epsilon": 1.0},
        {"kind": "mixes", "counts": {"1": "3"}, "epsilon": 1.0},
        {"kind": "mixes", "counts": {"1": True}, "epsilon": 1.0},
        {"kind": "mixes", "counts": {"1": -3}, "epsilon": 1.0},
        {"kind": "mixes", "counts": {"1": 3}, "epsilon": "1"},
        {"kind": "mixes", "counts": {"1": 3}, "epsilon": -1.0},
        {"kind": "mixes", "counts": {"1": 3}, "epsilon": True},
        {"kind": "mixes", "counts": {"1": 3}, "epsilon": 10**400},
        {"kind": 3, "note": "a plug-in's"},
    ],
)
def test_entries_of_plug_ins_are_ignored(foreign: Mapping[str, Any]) -> None:
    assert spent([mixes(5, 0.25), foreign]) == Spent(5, 0.25)


@pytest.mark.parametrize(
    ("policy", "before", "each", "wanted", "allowed"),
    [
        (Policy(), Spent(0, 0.0), 1e5, 50, 50),
        (Policy(), Spent(9, None), None, 50, 50),
        (Policy(share_mixes=False), Spent(0, 0.0), 0.1, 50, 0),
        (Policy(share_labels=False), Spent(0, 0.0), 0.1, 50, 0),
        (Policy(mix_limit=10), Spent(0, 0.0), None, 50, 10),
        (Policy(mix_limit=10), Spent(7, 0.0), 0.1, 50, 3),
        (Policy(mix_limit=10), Spent(7, 0.0), 0.1, 2, 2),
        (Policy(mix_limit=10), Spent(12, 0.0), 0.1, 50, 0),
        (Policy(mix_limit=0), Spent(0, 0.0), 0.1, 50, 0),
        (Policy(mix_epsilon=1.0), Spent(0, 0.0), 0.25, 50, 4),
        (Policy(mix_epsilon=1.0), Spent(2, 0.5), 0.25, 50, 2),
        (Policy(mix_epsilon=1.0), Spent(2, 0.75), 0.5, 50, 0),
        (Policy(mix_epsilon=1.0), Spent(0, 0.0), 1.0, 1, 1),
        (Policy(mix_epsilon=1.0), Spent(9, 1.0), 0.25, 50, 0),
        (Policy(mix_epsilon=1.0), Spent(0, 0.0), None, 50, 0),
        (Policy(mix_epsilon=1.0), Spent(1, None), 0.25, 50, 0),
        (Policy(mix_epsilon=1.0), Spent(0, 0.0), float("inf"), 50, 0),
        (Policy(mix_epsilon=1.0), Spent(0, 0.0), float("nan"), 50, 0),
        (Policy(mix_epsilon=1.0), Spent(0, 0.0), 0.0, 50, 50),
        (Policy(mix_epsilon=1.0, mix_limit=3), Spent(0, 0.0), 0.25, 50, 3),
        (Policy(mix_epsilon=1.0, mix_limit=9), Spent(0, 0.0), 0.25, 50, 4),
        (Policy(), Spent(0, 0.0), 0.1, 0, 0),
        (Policy(), Spent(0, 0.0), 0.1, -3, 0),
        # 3 * 0.1 is 0.30000000000000004, and 10 * 0.1 is 1.
        (Policy(mix_epsilon=0.3), Spent(0, 0.0), 0.1, 50, 2),
        (Policy(mix_epsilon=1.0), Spent(0, 0.0), 0.1, 50, 10),
        (Policy(mix_epsilon=1.0), Spent(9, 0.9), 0.1, 50, 1),
    ],
)
def test_what_the_owner_still_allows(
    policy: Policy, before: Spent, each: float | None, wanted: int, allowed: int
) -> None:
    assert allowed_mixes(policy, before, each, wanted) == allowed


def test_a_sum_that_was_rounded_down_is_not_taken_for_the_sum() -> None:
    ledger = [mixes(1, 0.1), mixes(1, 0.4)]
    assert spent(ledger).epsilon == 0.5
    assert 0.5 + 0.1 <= 0.6
    assert composed([0.1, 0.4, 0.1]) == 0.6000000000000001
    assert allowed_mixes(Policy(mix_epsilon=0.6), spent(ledger), 0.1, 1) == 0
    assert allowed_mixes(Policy(mix_epsilon=0.61), spent(ledger), 0.1, 1) == 1


EPSILONS = st.floats(1e-6, 50)
"""From a release that tells nothing to one that is vacuous."""


@given(
    limit=EPSILONS, asked=st.lists(st.tuples(EPSILONS, st.integers(1, 9)), min_size=1, max_size=12)
)
def test_the_budget_is_never_exceeded_and_used_as_far_as_it_goes(
    limit: float, asked: list[tuple[float, int]]
) -> None:
    policy, ledger = Policy(mix_epsilon=limit), [labels_release(0, 9, 2)]
    for each, wanted in asked:
        count = allowed_mixes(policy, spent(ledger), each, wanted)
        assert 0 <= count <= wanted
        assert count * each <= limit
        if count < wanted:  # one more would exceed it, but for the last place
            epsilon = composed([spent(ledger).epsilon, (count + 1) * each])
            assert epsilon is not None
            assert epsilon > limit * (1 - 1e-15)
        if count:
            ledger.append(mixes(count, count * each))
        total = spent(ledger).epsilon
        assert total is not None
        assert total <= limit


@given(each=EPSILONS, number=st.integers(1, 60))
def test_mixes_one_at_a_time_never_exceed_what_all_at_once_may_cost(
    each: float, number: int
) -> None:
    policy = Policy(mix_epsilon=number * each)
    ledger: list[dict[str, Any]] = []
    for _ in range(number + 2):
        if allowed_mixes(policy, spent(ledger), each, 1):
            ledger.append(mixes(1, each))
    assert number - 1 <= len(ledger) <= number
    assert composed(entry["epsilon"] for entry in ledger) <= number * each  # type: ignore[operator]


@given(limit=st.none() | st.integers(0, 40), wanted=st.lists(st.integers(0, 20), max_size=6))
def test_the_number_of_mixes_is_never_exceeded(limit: int | None, wanted: list[int]) -> None:
    policy = Policy(mix_limit=limit)
    ledger: list[dict[str, Any]] = []
    for each in wanted:
        ledger.append(mixes(allowed_mixes(policy, spent(ledger), None, each), None))
    most = sum(wanted) if limit is None else min(limit, sum(wanted))
    assert spent(ledger).mixes == most


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(), Budget("cam-1", 7, None, 1.25, None)),
        (Policy(mix_limit=10, mix_epsilon=2.0), Budget("cam-1", 7, 3, 1.25, 0.75)),
        (Policy(mix_limit=5, mix_epsilon=1.0), Budget("cam-1", 7, 0, 1.25, 0.0)),
        (Policy(share_mixes=False), Budget("cam-1", 7, 0, 1.25, None, False)),
        (Policy(share_labels=False), Budget("cam-1", 7, 0, 1.25, None, False)),
    ],
)
def test_what_is_left_of_the_budget(policy: Policy, expected: Budget) -> None:
    assert budget("cam-1", policy, [mixes(5, 0.25), mixes(2, 1.0)]) == expected


def test_a_release_without_epsilon_uses_the_budget_up() -> None:
    policy = Policy(mix_limit=10, mix_epsilon=100.0)
    assert budget("cam-1", policy, [mixes(5, None)]) == Budget("cam-1", 5, 5, None, 0.0)
    assert allowed_mixes(policy, spent([mixes(5, None)]), 0.1, 1) == 0
