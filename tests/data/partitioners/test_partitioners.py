"""The partitioners: what each promises of its parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.data.partitioners.balanced import balanced, holder_table
from edgefed.data.partitioners.dirichlet import dirichlet
from edgefed.data.partitioners.dirichlet_equal import dirichlet_equal
from edgefed.data.partitioners.iid import iid
from edgefed.errors import DataError
from tests.data.helpers import is_whole, labels_of

MODEST = settings(max_examples=30, deadline=None)
SEEDS = st.integers(0, 2**32)


@MODEST
@given(st.integers(1, 40), st.integers(1, 12), st.data(), SEEDS)
def test_the_table_uses_each_label_equally_and_no_device_holds_one_twice(
    devices: int, classes: int, data: st.DataObject, seed: int
) -> None:
    each = data.draw(st.integers(1, classes))
    table = holder_table(devices, each, classes, np.random.default_rng(seed))
    assert table.shape == (devices, each)
    assert all(len(set(row)) == each for row in table.tolist())
    uses = np.bincount(table.ravel(), minlength=classes)
    assert uses.max() - uses.min() <= 1
    if devices * each % classes == 0:
        assert uses.max() == uses.min()


def test_sixty_devices_with_two_of_tenlabels_of() -> None:
    labels = np.random.default_rng(0).permutation(labels_of(10, 5000))
    parts = balanced(labels, 60, 2, np.random.default_rng(1))
    assert is_whole(parts, 50_000)
    counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
    assert ((counts > 0).sum(axis=1) == 2).all()
    assert ((counts > 0).sum(axis=0) == 12).all()
    assert set(counts[counts > 0].tolist()) == {416, 417}


@MODEST
@given(st.integers(1, 20), st.integers(1, 6), st.integers(20, 40), st.data(), SEEDS)
def test_balanced_parts_are_disjoint_and_hold_just_so_manylabels_of(
    devices: int, classes: int, each: int, data: st.DataObject, seed: int
) -> None:
    labels = labels_of(classes, each)
    held = data.draw(st.integers(1, classes))
    parts = balanced(labels, devices, held, np.random.default_rng(seed))
    assert all(len(np.unique(labels[part])) == held for part in parts)
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together)
    if devices * held >= classes:
        assert is_whole(parts, len(labels))
    else:
        assert len(together) == devices * held * each


def test_balanced_skips_labels_that_no_sample_bears() -> None:
    labels = np.repeat([3, 7], 10)
    parts = balanced(labels, 4, 1, np.random.default_rng(0))
    assert sorted(labels[part][0] for part in parts) == [3, 3, 7, 7]
    with pytest.raises(DataError, match="needs 3 labels, but the data has 2"):
        balanced(labels, 4, 3, np.random.default_rng(0))


@MODEST
@given(st.integers(1, 8), st.integers(1, 6), st.floats(0.3, 10), st.booleans(), SEEDS)
def test_dirichlet_parts_are_whole_and_never_too_small(
    devices: int, classes: int, alpha: float, balance: bool, seed: int
) -> None:
    labels = labels_of(classes, 60)
    rng = np.random.default_rng(seed)
    parts = dirichlet(labels, devices, alpha, rng, min_samples=2, balance=balance)
    assert len(parts) == devices
    assert is_whole(parts, len(labels))
    assert min(len(part) for part in parts) >= 2


def test_balance_passes_over_devices_that_have_their_share() -> None:
    labels = labels_of(10, 300)
    seeds = range(10)
    largest = {
        balance: np.mean(
            [
                max(map(len, dirichlet(labels, 16, 0.5, np.random.default_rng(s), balance=balance)))
                for s in seeds
            ]
        )
        for balance in (True, False)
    }
    assert largest[True] < largest[False]


def test_smaller_alpha_is_more_skewed() -> None:
    labels = labels_of(10, 300)

    def labels_held(alpha: float) -> float:
        parts = dirichlet(labels, 10, alpha, np.random.default_rng(0))
        return float(np.mean([len(np.unique(labels[part])) for part in parts]))

    assert labels_held(0.1) < labels_held(1) < labels_held(100) == 10


def test_dirichlet_gives_up_on_a_minimum_that_cannot_be_met() -> None:
    with pytest.raises(DataError, match=r"In each of 1000 draws with alpha = 0\.01") as caught:
        dirichlet(labels_of(2, 50), 8, 0.01, np.random.default_rng(0))
    assert "min_samples" in caught.value.hint


@MODEST
@given(st.integers(1, 30), st.integers(1, 6), st.floats(0.001, 100), st.integers(5, 30), SEEDS)
def test_dirichlet_equal_parts_are_whole_and_equal(
    devices: int, classes: int, alpha: float, each: int, seed: int
) -> None:
    labels = labels_of(classes, each)
    parts = dirichlet_equal(labels, devices, alpha, np.random.default_rng(seed))
    assert len(parts) == devices
    assert is_whole(parts, len(labels))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_dirichlet_equal_follows_alpha() -> None:
    labels = labels_of(10, 300)

    def first_share(alpha: float) -> float:
        parts = dirichlet_equal(labels, 30, alpha, np.random.default_rng(0))
        return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))

    assert first_share(0.01) > 0.8
    assert first_share(1e6) < 0.25


@MODEST
@given(st.integers(1, 30), st.integers(0, 100), SEEDS)
def test_iid_parts_are_whole_and_equal(devices: int, more: int, seed: int) -> None:
    labels = np.zeros(devices + more, np.int64)
    parts = iid(labels, devices, np.random.default_rng(seed))
    assert len(parts) == devices
    assert is_whole(parts, len(labels))
    assert len({len(part) for part in parts}) <= 2
