"""Averaged data: the paper's means, computed by hand, and the limits of a policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.sharing.means import Averaging, average, check_hidden, own_word
from edgefed.sharing.policy import ANYTHING, Policy, Withheld
from edgefed.sharing.types import Array

CLASSES = 3


def some(count: int, seed: int = 1, classes: int = CLASSES) -> Samples:
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(count, 1, 2, 2)).astype(np.float32)
    return Samples(inputs, rng.integers(0, classes, count))


FLOATS, TOKENS = np.zeros((2, 2), np.float32), np.zeros((2, 2), np.int64)


def _with(inputs: Array, targets: list[Any]) -> Samples:
    return Samples(inputs, np.array(targets))


def test_one_group_is_the_mean_of_all() -> None:
    samples = Samples(
        np.array([[0.0, 3.0], [1.0, 5.0], [5.0, 1.0]], np.float32), np.array([2, 0, 2])
    )
    entries, sizes = average(samples, CLASSES, None, Averaging(), ANYTHING)
    assert sizes == [3]
    np.testing.assert_allclose(entries.inputs, [[2, 3]], rtol=1e-7)
    assert entries.inputs.dtype == entries.targets.dtype == np.float32
    np.testing.assert_allclose(entries.targets, [[1 / 3, 0, 2 / 3]], rtol=1e-7)


@given(st.integers(1, 80), st.integers(0, 90), st.integers(1, 90))
def test_means_are_of_the_data_and_no_group_is_too_small(count: int, size: int, least: int) -> None:
    samples, policy = some(count), Policy(least_group=least)
    if count < least:
        with pytest.raises(Withheld, match=f"has {count} sample"):
            average(samples, CLASSES, None, Averaging(size), policy)
        return
    entries, sizes = average(samples, CLASSES, None, Averaging(size), policy)
    assert sum(sizes) == count
    assert min(sizes) >= least
    assert min(sizes) >= min(size, count)
    np.testing.assert_allclose(entries.targets.sum(axis=1), 1, atol=1e-6)
    whole = np.average(entries.inputs, axis=0, weights=sizes)
    np.testing.assert_allclose(whole, samples.inputs.mean(axis=0), atol=1e-5)
    shares = np.average(entries.targets, axis=0, weights=sizes)
    wanted = np.bincount(samples.targets, minlength=CLASSES) / count
    np.testing.assert_allclose(shares, wanted, atol=1e-6)


def test_groups_of_one_are_the_raw_samples() -> None:
    samples = some(6)
    entries, sizes = average(samples, CLASSES, None, Averaging(1), ANYTHING)
    assert sizes == [1] * 6
    pairs = {
        (x.tobytes(), int(y.argmax())) for x, y in zip(entries.inputs, entries.targets, strict=True)
    }
    assert pairs == {
        (x.tobytes(), int(y)) for x, y in zip(samples.inputs, samples.targets, strict=True)
    }


def test_a_policy_makes_groups_larger() -> None:
    entries, sizes = average(some(40), CLASSES, None, Averaging(2), Policy(least_group=10))
    assert sizes == [10] * 4
    assert len(entries) == 4


def test_a_policy_may_refuse() -> None:
    with pytest.raises(Withheld, match="share_means = false"):
        average(some(9), CLASSES, None, Averaging(), Policy(share_means=False))


def test_the_same_data_make_the_same_averages_and_others_do_not() -> None:
    once, again = (average(some(40), CLASSES, None, Averaging(5, 0.1), ANYTHING) for _ in range(2))
    assert once[0].inputs.tobytes() == again[0].inputs.tobytes()
    changed = some(40)
    changed.inputs[0] += 1
    other = average(changed, CLASSES, None, Averaging(5, 0.1), ANYTHING)
    assert (once[0].inputs != other[0].inputs).mean() > 0.9


def test_noise_has_the_wanted_deviation_and_leaves_targets_alone() -> None:
    samples = Samples(np.zeros((2000, 50), np.float32), np.zeros(2000, np.int64))
    entries, _ = average(samples, CLASSES, None, Averaging(4, 0.3), ANYTHING)
    assert entries.inputs.std() == pytest.approx(0.3, rel=0.02)
    assert abs(entries.inputs.mean()) < 0.01
    np.testing.assert_array_equal(entries.targets, np.tile([1, 0, 0], (500, 1)))


def test_two_strengths_of_noise_do_not_give_the_mean_away() -> None:
    """With one noise for all, 2 (x + z) - (x + 2 z) would be x."""
    exact, weak, strong = (
        average(some(40), CLASSES, None, Averaging(5, noise), ANYTHING)[0].inputs
        for noise in (0.0, 0.1, 0.2)
    )
    assert np.abs(2 * weak - strong - exact).std() > 0.1


def test_labels_apart() -> None:
    entries, sizes = average(some(60), CLASSES, None, Averaging(8, 0, True), ANYTHING)
    assert set(np.unique(entries.targets)) == {0, 1}
    assert min(sizes) >= 8


def test_labels_apart_are_grouped_by_the_size_too() -> None:
    samples = Samples(some(25).inputs, np.array([0] * 20 + [1] * 5))
    _, sizes = average(samples, CLASSES, None, Averaging(4, 0, True), ANYTHING)
    assert sorted(sizes) == [4, 4, 4, 4, 4, 5]


def test_sums_are_of_double_precision() -> None:
    """A thousand times the float32 next to 0.1 is no float32, so a sum of such would drift off."""
    tenth = np.full((1000, 2), 0.1, np.float32)
    entries, _ = average(Samples(tenth, tenth), 2, None, Averaging(), ANYTHING)
    assert set(entries.inputs.flat) == set(entries.targets.flat) == {np.float32(0.1)}


def test_labels_apart_leave_only_a_device_whose_policy_lets_samples_go() -> None:
    """A label with a single sample: the mean of all, less those of other labels, is that sample."""
    samples = Samples(some(21).inputs, np.array([0] * 20 + [1]))
    for least in (2, 20):
        with pytest.raises(Withheld, match="averages of single labels"):
            average(samples, CLASSES, None, Averaging(0, 0, True), Policy(least_group=least))


def test_tokens_are_averaged_as_one_hot_vectors() -> None:
    samples = Samples(np.array([[0, 2], [1, 2], [0, 3], [0, 2]]), np.array([1, 1, 0, 2]))
    entries, _ = average(samples, CLASSES, 4, Averaging(), ANYTHING)
    np.testing.assert_allclose(
        entries.inputs, [[[0.75, 0.25, 0, 0], [0, 0, 0.75, 0.25]]], rtol=1e-7
    )


def test_raw_tokens_leave_only_a_device_whose_policy_lets_samples_go() -> None:
    rng = np.random.default_rng(1)
    samples = Samples(rng.integers(0, 4, (30, 6)), rng.integers(0, CLASSES, 30))
    entries, sizes = average(samples, CLASSES, 4, Averaging(1, raw=True), ANYTHING)
    assert sizes == [1] * 30
    assert sorted(map(bytes, entries.inputs)) == sorted(map(bytes, samples.inputs))
    for size, policy in ((1, Policy(least_group=2)), (10, ANYTHING), (0, ANYTHING)):
        with pytest.raises(Withheld, match="raw samples"):
            average(samples, CLASSES, 4, Averaging(size, raw=True), policy)


def test_targets_of_a_regression_are_averaged_too() -> None:
    samples = Samples(np.eye(2, dtype=np.float32), np.array([[1.0, 4.0], [3.0, 0.0]], np.float32))
    entries, _ = average(samples, 2, None, Averaging(), ANYTHING)
    np.testing.assert_allclose(entries.targets, [[2, 2]])


@pytest.mark.parametrize(
    ("samples", "asked", "code", "said"),
    [
        (_with(FLOATS, [0, 3]), Averaging(), "data.labels", "range from 0 to 3, .* knows 0 to 2"),
        (_with(FLOATS, [-1, 0]), Averaging(), "data.labels", "range from -1"),
        (_with(TOKENS, [0, 1]), Averaging(), "data.discrete", "not numbers"),
        (_with(FLOATS, [[0.5], [1.5]]), Averaging(same_class=True), "data.targets", "Only labels"),
    ],
)
def test_what_cannot_be_averaged_is_refused(
    samples: Samples, asked: Averaging, code: str, said: str
) -> None:
    with pytest.raises(DataError, match=said) as caught:
        average(samples, CLASSES, None, asked, ANYTHING)
    assert caught.value.code == code
    assert code != "data.discrete" or "split" in caught.value.hint


@pytest.mark.parametrize(
    ("asked", "policy", "said"),
    [
        (Averaging(), Policy(least_group=10), "has 9 samples, and its policy requires 10"),
        (Averaging(1, raw=True), Policy(least_group=2), "raw samples"),
        (Averaging(same_class=True), Policy(least_group=2), "single labels"),
    ],
)
def test_what_a_policy_keeps_back_can_be_changed(
    asked: Averaging, policy: Policy, said: str
) -> None:
    with pytest.raises(Withheld, match=said) as caught:
        average(some(9), CLASSES, None, asked, policy)
    assert caught.value.code == "share.withheld"
    assert caught.value.hint


def test_hidden_states_leave_only_a_device_whose_policy_lets_them() -> None:
    check_hidden(ANYTHING)
    with pytest.raises(Withheld, match="share_hidden = false") as caught:
        check_hidden(Policy(share_hidden=False))
    assert (caught.value.code, bool(caught.value.hint)) == ("share.withheld", True)


def test_a_device_with_one_sample_gives_it_only_if_its_policy_lets_raw_samples_go() -> None:
    entries, sizes = average(some(1), CLASSES, None, Averaging(), ANYTHING)
    assert (len(entries), sizes) == (1, [1])
    with pytest.raises(Withheld, match="has 1 sample, and its policy requires 10"):
        average(some(1), CLASSES, None, Averaging(), Policy(least_group=10))


def test_the_word_of_the_data_changes_with_them_and_with_the_device() -> None:
    assert own_word(some(5), "a") == own_word(some(5), "a")
    assert len({own_word(some(5), "a"), own_word(some(5, 2), "a"), own_word(some(5), "b")}) == 3
