"""The partitioners of other papers' code: what each promises of its parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.data.base.types import Indices
from edgefed.data.devices.partition import concentration
from edgefed.data.partitioners.cover import Cover, Parts, check_parts
from edgefed.data.partitioners.dirichlet_equal import dirichlet_equal, equal_concentration
from edgefed.data.partitioners.disjoint_random import covering_table, disjoint_random
from edgefed.data.partitioners.draws import DRAWS, EFFORT, ROW, draws
from edgefed.data.partitioners.growing import growing
from edgefed.data.partitioners.natural import natural
from edgefed.data.partitioners.niid_label import niid_label
from edgefed.data.partitioners.overlap import overlap
from edgefed.data.partitioners.pachinko import pachinko
from edgefed.data.partitioners.quantity import quantity
from edgefed.data.partitioners.shards import shards
from edgefed.errors import DataError
from tests.data.helpers import is_whole, labels_of, section

MODEST = settings(max_examples=20, deadline=None)
SEEDS = st.integers(0, 2**32)


def _held(parts: Parts, labels: Indices) -> list[int]:
    return [len(np.unique(labels[part])) for part in parts]


@MODEST
@given(st.integers(1, 20), st.integers(1, 6), st.integers(20, 40), st.data(), SEEDS)
def test_overlapping_parts_are_equal_and_share_samples_but_hold_none_twice(
    devices: int, classes: int, each: int, data: st.DataObject, seed: int
) -> None:
    labels = labels_of(classes, each)
    held = data.draw(st.integers(1, classes))
    parts = overlap(labels, devices, held, np.random.default_rng(seed))
    check_parts(parts, labels, Cover.SHARED)
    size = min(len(labels) // devices, held * each)
    assert {len(part) for part in parts} == {size}
    assert max(_held(parts, labels)) <= held


def test_overlap_gives_two_devices_of_all_labels_the_same_samples() -> None:
    labels = labels_of(2, 50)
    one, other = overlap(labels, 2, 2, np.random.default_rng(0))
    assert len(np.intersect1d(one, other)) > 0


@MODEST
@given(st.integers(1, 20), st.integers(1, 12), st.data(), SEEDS)
def test_a_covering_table_has_each_label_and_none_twice_in_a_row(
    devices: int, classes: int, data: st.DataObject, seed: int
) -> None:
    least = -(-classes // devices)
    held = data.draw(st.integers(least, classes))
    table = covering_table(devices, held, classes, np.random.default_rng(seed))
    assert table.shape == (devices, held)
    assert all(len(set(row)) == held for row in table.tolist())
    assert set(table.ravel().tolist()) == set(range(classes))


@MODEST
@given(st.integers(2, 12), st.integers(1, 6), st.data(), SEEDS)
def test_disjoint_random_parts_are_whole_and_hold_fewlabels_of(
    devices: int, classes: int, data: st.DataObject, seed: int
) -> None:
    labels = labels_of(classes, 60)
    held = data.draw(st.integers(-(-classes // devices), classes))
    parts = disjoint_random(labels, devices, held, np.random.default_rng(seed))
    check_parts(parts, labels, Cover.ALL)
    assert max(_held(parts, labels)) <= held


def test_disjoint_random_sizes_differ() -> None:
    parts = disjoint_random(labels_of(10, 500), 10, 2, np.random.default_rng(0))
    assert len({len(part) for part in parts}) > 2


@MODEST
@given(st.integers(1, 20), st.integers(1, 6), st.data(), SEEDS)
def test_niid_label_gives_device_i_label_i_and_splits_labels_evenly(
    devices: int, classes: int, data: st.DataObject, seed: int
) -> None:
    labels = labels_of(classes, 40)
    held = data.draw(st.integers(1, classes))
    parts = niid_label(labels, devices, held, np.random.default_rng(seed))
    check_parts(parts, labels, Cover.LABELS)
    assert set(_held(parts, labels)) == {held}
    for device, part in enumerate(parts):
        assert device % classes in labels[part]
    for label in range(classes):
        sizes = [count for part in parts if (count := int((labels[part] == label).sum()))]
        assert not sizes or max(sizes) - min(sizes) <= 1


@MODEST
@given(st.integers(1, 20), st.integers(1, 4), st.integers(1, 6), SEEDS)
def test_shards_are_whole_and_nearly_equal(
    devices: int, each: int, classes: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(labels_of(classes, 83))
    parts = shards(labels, devices, each, np.random.default_rng(seed))
    check_parts(parts, labels, Cover.ALL)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= each


def test_a_hundred_devices_with_two_shards_hold_at_most_two_digits() -> None:
    # LG-FedAvg's and McMahan's MNIST: 200 shards of 300; 6,000 of each digit make 20 shards.
    labels = np.random.default_rng(0).permutation(labels_of(10, 6000))
    parts = shards(labels, 100, 2, np.random.default_rng(1))
    assert {len(part) for part in parts} == {600}
    assert set(_held(parts, labels)) == {1, 2}


@MODEST
@given(st.integers(1, 8), st.floats(0.5, 10), SEEDS)
def test_quantity_parts_are_whole_and_never_too_small(
    devices: int, alpha: float, seed: int
) -> None:
    labels = np.zeros(800, np.int64)
    parts = quantity(labels, devices, alpha, np.random.default_rng(seed), min_samples=3)
    assert is_whole(parts, 800)
    assert min(len(part) for part in parts) >= 3


def test_quantity_follows_alpha_and_gives_up() -> None:
    labels = np.zeros(3000, np.int64)

    def largest(alpha: float) -> int:
        return max(map(len, quantity(labels, 10, alpha, np.random.default_rng(0), min_samples=1)))

    assert largest(0.5) > largest(1e5) < 310
    with pytest.raises(DataError, match=r"In each of 1000 draws with alpha = 0\.01"):
        quantity(labels, 10, 0.01, np.random.default_rng(0))


def test_growing_uses_some_pieces_and_leaves_the_others() -> None:
    # FedMA: 50,000 samples, about 5,000 a device, 5 pieces: (step + 1) * floor(50,000 / 5,000 / 5).
    labels = np.random.default_rng(0).permutation(labels_of(10, 500))
    for used in (1, 3, 5):
        parts = growing(labels, 2 * used, 0.5, np.random.default_rng(1), pieces=5, pieces_used=used)
        check_parts(parts, labels, Cover.SOME)
        assert sum(map(len, parts)) == 1000 * used


@MODEST
@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.data(), st.booleans(), SEEDS)
def test_nobodys_samples_go_to_two_devices(
    sizes: list[int], data: st.DataObject, merge: bool, seed: int
) -> None:
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    devices = data.draw(st.integers(1, len(sizes)))
    parts = natural(groups, devices, np.random.default_rng(seed), min_samples=1, merge=merge)
    check_parts(parts, np.zeros(len(groups), np.int64), Cover.GROUPS, groups)
    owners = [len(np.unique(groups[part])) for part in parts]
    assert sum(owners) == (len(sizes) if merge else devices)
    assert max(owners) - min(owners) <= 1


def test_natural_leaves_small_writers_out_and_says_when_too_few_are_left() -> None:
    groups = np.repeat([0, 1, 2], [5, 30, 12])
    parts = natural(groups, 2, np.random.default_rng(0), min_samples=10)
    assert sorted(len(part) for part in parts) == [12, 30]
    with pytest.raises(DataError, match="2 of 3 writers or roles have at least 10") as caught:
        natural(groups, 3, np.random.default_rng(0), min_samples=10)
    assert caught.value.code == "data.partition"


@MODEST
@given(st.integers(1, 12), st.integers(1, 3), st.integers(1, 3), st.floats(0.01, 100), SEEDS)
def test_pachinko_parts_are_whole_and_equal(
    devices: int, kinds: int, under: int, alpha: float, seed: int
) -> None:
    labels = labels_of(kinds * under, 15)
    coarse = np.arange(kinds * under) % kinds
    parts = pachinko(labels, coarse, devices, np.random.default_rng(seed), coarse_alpha=alpha)
    check_parts(parts, labels, Cover.ALL)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_pachinko_of_a_hundred_labels_uses_all_samples_once_and_few_coarse_labels_each() -> None:
    # CIFAR-100 in small: 20 coarse labels of 5, ten samples each, 50 devices of 20.
    labels, coarse = labels_of(100, 10), np.arange(100) // 5
    parts = pachinko(labels, coarse, 50, np.random.default_rng(0))
    assert is_whole(parts, 1000)
    assert {len(part) for part in parts} == {20}
    kinds = [len(np.unique(coarse[labels[part]])) for part in parts]
    assert np.mean(kinds) < 7
    even = pachinko(labels, coarse, 50, np.random.default_rng(0), coarse_alpha=1e6)
    assert np.mean([len(np.unique(coarse[labels[part]])) for part in even]) > np.mean(kinds)


def test_the_same_alpha_is_ten_times_larger_per_component() -> None:
    # Hsu et al.: Dir(alpha * p) with ten balanced labels is alpha / 10 for each.
    labels = labels_of(10, 50)
    assert np.allclose(equal_concentration(labels, 0.5, per_component=False), np.full(10, 0.05))
    assert np.array_equal(equal_concentration(labels, 0.5, per_component=True), np.full(10, 0.5))

    def largest_share(per_component: bool) -> float:
        rng = np.random.default_rng(0)
        parts = dirichlet_equal(labels, 10, 0.5, rng, per_component=per_component)
        return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))

    assert largest_share(False) > largest_share(True)


@pytest.mark.parametrize(
    ("keys", "axis", "components", "values"),
    [
        ({"partition": "dirichlet", "alpha": 0.3}, "devices, for each label", 6, [0.3]),
        ({"partition": "dirichlet-equal", "alpha": 0.5}, "labels, for each device", 4, [0.125]),
        ({"partition": "quantity", "alpha": 2.0}, "devices", 6, [2.0]),
        ({"partition": "growing", "parts_per_device": 2}, "parts, for each label", 12, [0.5]),
        ({"partition": "pachinko"}, "coarse labels, for each device", 2, [0.1]),
    ],
)
def test_what_is_drawn_from_is_told_in_full(
    keys: dict[str, object], axis: str, components: int, values: list[float]
) -> None:
    told = concentration(section(**keys), labels_of(4, 5), 6, np.array([0, 0, 1, 1]))
    assert told is not None
    assert (told["axis"], told["components"], told["values"]) == (axis, components, values)
    assert concentration(section(partition="iid"), labels_of(4, 5), 6) is None


@MODEST
@given(st.integers(1, 5000), st.integers(1, 100_000))
def test_a_hopeless_request_draws_a_bounded_number_of_proportions(rows: int, devices: int) -> None:
    tries = draws(rows, devices)
    assert 1 <= tries <= DRAWS
    assert tries == 1 or tries * rows * (devices + ROW) <= EFFORT


@pytest.mark.parametrize("alpha", [1e-300, 1e300, float("inf")])
def test_extreme_concentrations_give_parts_or_our_error(alpha: float) -> None:
    labels = labels_of(5, 40)
    parts = dirichlet_equal(labels, 8, alpha, np.random.default_rng(0))
    assert is_whole(parts, 200)
    try:
        assert is_whole(quantity(labels, 8, alpha, np.random.default_rng(0)), 200)
    except DataError as error:
        assert "draws" in error.message


@pytest.mark.parametrize(
    ("cover", "parts"),
    [
        (Cover.LABELS, ((0, 1), (1, 2, 3))),
        (Cover.LABELS, ((0,), (2, 3))),
        (Cover.LABELS, ((0, 1), (2, 3, 4))),
        (Cover.LABELS, ((0, 0, 1), (2, 3))),
        (Cover.ALL, ((0, 1), (2,))),
        (Cover.SOME, ((0, 1), (1,))),
        (Cover.SHARED, ((0, 0), (1,))),
        (Cover.GROUPS, ((0, 1), (2, 3))),
        (Cover.GROUPS, ((0,), (1, 3))),
    ],
)
def test_each_cover_finds_what_breaks_it(cover: Cover, parts: tuple[tuple[int, ...], ...]) -> None:
    arrays = tuple(np.array(part) for part in parts)
    labels, groups = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"a sample is|samples of one group"):
        check_parts(arrays, labels, cover, groups)


def test_overlap_draws_a_number_of_samples_of_a_devices_labels() -> None:
    """50 devices draw 30 of the 40 samples of four labels in five: each of 50 is held by 30."""
    labels = np.repeat(np.arange(5), 10)
    parts = overlap(labels, 50, 4, np.random.default_rng(1), samples=30)
    assert {len(part) for part in parts} == {30}
    assert all(len(set(part.tolist())) == 30 and len(set(labels[part])) == 4 for part in parts)
    held = np.bincount(np.concatenate(parts), minlength=50)
    assert abs(held - 30).max() < 4 * (50 * 0.6 * 0.4) ** 0.5  # binomial, 50 draws of 3 in 5
    whole = overlap(labels, 3, 2, np.random.default_rng(1), samples=30)
    assert {len(part) for part in whole} == {20}, "all samples of the two labels"
    again = overlap(labels, 50, 4, np.random.default_rng(1), samples=30)
    assert all(map(np.array_equal, parts, again))
