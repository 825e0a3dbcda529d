"""Shares of experts: of a table, of a device, after pruning, and their entropy."""

from __future__ import annotations

import numpy as np
import pytest

from edgefed.learn.base.mixture_table import (
    HYSTERESIS,
    device_shares,
    entropy,
    kept_experts,
    marginal_entropy_gradient,
    pruned,
    shares_of,
)
from edgefed.learn.base.types import Array

NUMBERS = np.random.default_rng(4)
PHI = NUMBERS.normal(0, 2, (5, 4))
LABELS = np.array([0.5, 0.2, 0.0, 0.2, 0.1])


def test_rows_of_shares_sum_to_one_before_and_after_pruning() -> None:
    shares = shares_of(PHI)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-14)
    for kept in ((0, 1, 2, 3), (1, 3), (2,)):
        left = pruned(shares, kept)
        np.testing.assert_allclose(left.sum(axis=1), 1.0, rtol=1e-14)
        assert not np.delete(left, kept, axis=1).any()
        np.testing.assert_allclose(left[:, kept] * shares[:, kept].sum(1, keepdims=True),
                                   shares[:, kept], rtol=1e-13)  # fmt: skip


def test_a_device_has_the_mean_of_its_labels_shares() -> None:
    exponents = np.exp(PHI)
    by_hand = sum(LABELS[y] * exponents[y] / exponents[y].sum() for y in range(5))
    np.testing.assert_allclose(device_shares(PHI, LABELS), by_hand, rtol=1e-13)
    np.testing.assert_allclose(device_shares(np.zeros((5, 4)), LABELS), 0.25, rtol=1e-15)


def test_large_logits_leave_shares_finite() -> None:
    np.testing.assert_array_equal(shares_of(np.array([[1e4, -1e4]], np.float32)), [[1.0, 0.0]])


def test_an_expert_is_kept_from_eta_over_k_on() -> None:
    shares = np.array([0.4, 0.25, 0.2, 0.15])
    assert kept_experts(shares, 0.0) == (0, 1, 2, 3)
    assert kept_experts(shares, 0.8) == (0, 1, 2)  # 0.8 / 4 = 0.2, of which 0.2 is not below
    assert kept_experts(shares, 1.0) == (0, 1)


def test_rounding_does_not_choose_among_equal_experts() -> None:
    even = device_shares(np.zeros((5, 4), np.float32), LABELS)
    assert kept_experts(even, 1.0) == (0, 1, 2, 3)
    # Whether a softmax of zeros rounds down depends on the processor.
    below = np.full(4, np.nextafter(0.25, 0.0))
    assert kept_experts(below, 1.0) == (0, 1, 2, 3)


@pytest.mark.parametrize("eta", [0.0, 0.3, 0.7, 0.99, 1.0])
def test_the_coordinators_kept_set_contains_the_devices(eta: float) -> None:
    for row in shares_of(NUMBERS.normal(0, 1.5, (200, 4))):
        sent = set(np.flatnonzero(row >= HYSTERESIS * eta / 4))
        assert set(kept_experts(row, eta)) <= sent
    assert HYSTERESIS < 1


def test_nothing_but_pruned_experts_shares_leaves_equal_ones() -> None:
    np.testing.assert_array_equal(pruned(np.array([1.0, 0.0, 0.0]), (1, 2)), [0, 0.5, 0.5])


def test_entropy_is_in_nats() -> None:
    assert entropy(np.full(4, 0.25)) == pytest.approx(np.log(4), rel=1e-15)
    assert entropy(np.array([1.0, 0.0])) == 0.0


@pytest.mark.parametrize("frequencies", [np.full(5, 0.2), LABELS])
def test_the_marginal_entropys_gradient_is_that_of_finite_differences(
    frequencies: Array,
) -> None:
    found, step = marginal_entropy_gradient(PHI, frequencies), 1e-6
    for place in np.ndindex(PHI.shape):
        moved = np.zeros_like(PHI)
        moved[place] = step
        above = entropy(device_shares(PHI + moved, frequencies))
        below = entropy(device_shares(PHI - moved, frequencies))
        assert found[place] == pytest.approx((above - below) / (2 * step), abs=1e-9)
