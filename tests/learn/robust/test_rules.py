"""Robust rules against numbers worked out by hand, and the properties that their papers prove."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.config.recipes.merging_section import MergingSection
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.robust.aggregate import aggregated, merging_bytes
from edgefed.learn.robust.coordinate_rules import trimmed_count
from edgefed.learn.robust.distances import squared_distances
from edgefed.learn.robust.geometric_median import weiszfeld_shares
from edgefed.learn.robust.krum import krum_scores, krum_shares
from edgefed.learn.robust.norms import RUNNING, WEIGHTS, clipped, median_norms, norms_of
from edgefed.learn.robust.updates import BATCH_BYTES, Updates

RULES = ("median", "trimmed_mean", "krum", "multi_krum", "geometric_median")
HONEST = 7
MALICIOUS = 2


def column(*values: float) -> list[Tensors]:
    """Return an update of one value for each device."""
    return [{"w": np.array([value], np.float32)} for value in values]


def merged(updates: list[Tensors], rule: str, *, batch: int = BATCH_BYTES, **keys: object) -> Array:
    section = MergingSection.model_validate({"rule": rule, **keys})
    return aggregated(Updates.of(updates, batch), section)["w"]


def honest(seed: int, count: int = HONEST) -> list[Tensors]:
    rng = np.random.default_rng(seed)
    return [{"w": (1 + 0.1 * rng.standard_normal((4, 5))).astype(np.float32)} for _ in range(count)]


def test_the_median_is_the_middle_value_or_the_mean_of_the_two() -> None:
    assert merged(column(5, 1, 100), "median") == [5]
    assert merged(column(5, 1, 100, 2), "median") == [3.5]
    assert merged(column(4), "median") == [4]


def test_the_trimmed_mean_leaves_out_a_share_at_each_end() -> None:
    assert merged(column(1, 2, 3, 4, 100), "trimmed_mean", trimmed=0.2) == [3]
    assert merged(column(-50, 2, 4, 100), "trimmed_mean", trimmed=0.25) == [3]
    assert merged(column(1, 2, 6), "trimmed_mean", trimmed=0.0) == [3]


def test_the_share_of_a_hundred_values_is_not_short_of_one() -> None:
    assert trimmed_count(0.29, 100) == 29
    assert trimmed_count(0.49, 2) == 0
    assert trimmed_count(0.45, 5) == 2


def test_krum_scores_are_the_sums_of_the_nearest_squared_distances() -> None:
    """Five updates 0, 1, 2, 4, 10 and f = 1: n - f - 2 = 2 neighbours.

    s(0) = 1 + 4, s(1) = 1 + 1, s(2) = 1 + 4, s(4) = 4 + 9, s(10) = 36 + 64.
    """
    updates = Updates.of(column(0, 1, 2, 4, 10))
    distances = squared_distances(updates, ["w"])
    assert distances[0].tolist() == [0, 1, 4, 16, 100]
    assert krum_scores(distances, 1).tolist() == [5, 2, 5, 13, 100]
    assert merged(column(0, 1, 2, 4, 10), "krum", malicious=1) == [1]
    best = krum_shares(distances, 1, 3)
    assert best.tolist() == [1 / 3, 1 / 3, 1 / 3, 0, 0]
    assert merged(column(0, 1, 2, 4, 10), "multi_krum", malicious=1, selected=3) == [1]
    assert merged(column(0, 1, 2, 4, 10), "multi_krum", malicious=1) == [1.75]


def test_krum_with_too_few_updates_assumes_as_many_malicious_as_they_allow() -> None:
    assert merged(column(7), "krum", malicious=3) == [7]
    assert merged(column(0, 1, 1.5, 9), "krum", malicious=3) == [1]


def test_the_geometric_median_of_a_right_triangle_is_its_fermat_point() -> None:
    """Of (0, 0), (1, 0), (0, 1) it is x = y = (3 - sqrt 3) / 6: all its angles are 120 degrees."""
    corners = [{"w": np.array(each, np.float32)} for each in ((0, 0), (1, 0), (0, 1))]
    place = (3 - math.sqrt(3)) / 6
    assert merged(corners, "geometric_median", tolerance=1e-15) == pytest.approx([place, place])


def test_the_geometric_median_on_a_line_is_the_median() -> None:
    assert merged(column(0, 1, 50), "geometric_median") == pytest.approx([1], abs=1e-3)


def test_weiszfeld_on_distances_finds_what_it_finds_on_vectors() -> None:
    points = np.random.default_rng(3).standard_normal((9, 6))
    differences = points[:, None] - points[None]
    shares = weiszfeld_shares(np.square(differences).sum(axis=2), 1e-6, 500, 1e-12)
    place = points.mean(axis=0)
    for _ in range(500):
        pulls = 1 / np.maximum(1e-6, np.linalg.norm(points - place, axis=1))
        place = (pulls[:, None] * points).sum(axis=0) / pulls.sum()
    assert shares @ points == pytest.approx(place, abs=1e-5)


@pytest.mark.parametrize("rule", RULES)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_devices_does_not_matter(rule: str, seed: int) -> None:
    updates = honest(seed)
    order = np.random.default_rng(seed).permutation(len(updates))
    before = merged(updates, rule)
    after = merged([updates[each] for each in order], rule)
    if rule in ("median", "trimmed_mean"):
        assert np.array_equal(before, after)
    else:
        np.testing.assert_allclose(before, after, rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@given(
    seed=st.integers(0, 2**32 - 1),
    value=st.floats(-64, 64, width=32),
    other=st.floats(-64, 64, width=32),
)
def test_two_of_nine_devices_cannot_move_the_result_out_of_the_honest_ones(
    rule: str, seed: int, value: float, other: float
) -> None:
    updates = honest(seed)
    bad: list[Tensors] = [{"w": np.full((4, 5), each, np.float32)} for each in (value, other)]
    found = merged([*bad, *updates], rule, malicious=MALICIOUS, trimmed=0.25)
    centre = np.mean([each["w"] for each in updates], axis=0)
    spread = max(float(np.linalg.norm(each["w"] - centre)) for each in updates)
    assert np.linalg.norm(found - centre) <= 3 * spread


@pytest.mark.parametrize("rule", RULES)
def test_most_of_the_devices_do_move_the_result(rule: str) -> None:
    bad: list[Tensors] = [{"w": np.full((4, 5), 60, np.float32)} for _ in range(HONEST + 2)]
    found = merged([*honest(1), *bad], rule, malicious=1)
    assert float(np.abs(found - 1).max()) > 25


@pytest.mark.parametrize("rule", RULES)
def test_equal_updates_merge_to_the_same(rule: str) -> None:
    same = honest(5, 1)[0]["w"]
    found = merged([{"w": same.copy()} for _ in range(6)], rule)
    np.testing.assert_allclose(found, same, rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("batch", [1, 64, 300])
def test_small_batches_give_what_one_batch_gives(rule: str, batch: int) -> None:
    rng = np.random.default_rng(4)
    updates: list[Tensors] = [
        {
            "w": rng.standard_normal((4, 5)).astype(np.float32),
            "v": rng.standard_normal(3).astype(np.float32),
            "n": np.array(rng.integers(0, 9), np.int64),
        }
        for _ in range(7)
    ]
    section = MergingSection.model_validate({"rule": rule})
    one = aggregated(Updates.of(updates), section)
    many = aggregated(Updates.of(updates, batch), section)
    assert list(one) == list(many) == ["w", "v", "n"]
    for name, array in one.items():
        assert array.dtype == updates[0][name].dtype
        assert array.shape == updates[0][name].shape
        np.testing.assert_allclose(array, many[name], rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_a_batch_holds_no_more_than_its_bytes(rule: str) -> None:
    reads: list[int] = []
    updates = honest(2)

    def read(number: int) -> Tensors:
        reads.append(number)
        return updates[number]

    aggregated(
        Updates.read_by(HONEST, read, 4 * 10 * HONEST),
        MergingSection.model_validate({"rule": rule}),
    )
    # Half of the twenty values fit; one more reading of the shapes, and perhaps of the chosen ones.
    assert 1 + 2 * HONEST <= len(reads) <= 1 + 3 * HONEST


def test_integers_are_merged_to_their_median() -> None:
    updates: list[Tensors] = [
        {"w": np.zeros(2, np.float32), "bn.num_batches_tracked": np.array(each)}
        for each in (3, 4, 1000)
    ]
    for rule in RULES:
        section = MergingSection.model_validate({"rule": rule, "trimmed": 0.4})
        found = aggregated(Updates.of(updates), section)
        assert found["bn.num_batches_tracked"] == 4


def test_norms_are_of_weights_and_of_running_statistics() -> None:
    update: Tensors = {
        "a": np.array([3.0], np.float32),
        "b": np.array([[4.0]], np.float32),
        "bn.running_var": np.array([6.0, 8.0], np.float32),
        "bn.num_batches_tracked": np.array(99),
    }
    assert norms_of(update) == {WEIGHTS: 5, RUNNING: 10}
    cut = clipped(update, {WEIGHTS: 1, RUNNING: 20})
    assert [cut["a"].item(), cut["b"].item()] == pytest.approx([0.6, 0.8])
    assert cut["bn.running_var"].tolist() == [6, 8]
    assert cut["bn.num_batches_tracked"] == 99


def test_median_norms_take_each_part_from_those_that_have_it() -> None:
    found = median_norms([{WEIGHTS: 1}, {WEIGHTS: 2, RUNNING: 7}, {WEIGHTS: 4}, {WEIGHTS: 40}])
    assert found == {WEIGHTS: 3, RUNNING: 7}


def test_the_memory_of_a_rule_is_bounded_by_its_batch() -> None:
    median, krum = MergingSection(rule="median"), MergingSection(rule="krum")
    assert merging_bytes(MergingSection(), 1000, 10) == 0
    assert merging_bytes(median, 1000, 10) == 11_000
    assert merging_bytes(krum, 1000, 10) == 10_000 + 800 + 3000
    assert merging_bytes(median, 10**8, 1000) == BATCH_BYTES + 10**8
