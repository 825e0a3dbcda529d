"""The exact weighted mean: independent of order, correct, and atomic."""

from __future__ import annotations

import weakref
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.errors import DataError
from edgefed.learn.aggregation import exact_mean as merging
from edgefed.learn.aggregation.exact_mean import BLOCK, BOUND, MAX_TOTAL_WEIGHT, ExactMean
from edgefed.learn.base.types import Tensors
from edgefed.native import merging as kernels
from edgefed.native.library import native

values = st.floats(-BOUND, BOUND, width=32)
counts = st.integers(-(2**40), 2**40)
answers = st.lists(
    st.tuples(st.lists(values, min_size=3, max_size=3), counts, st.integers(1, 10**6)),
    min_size=1,
    max_size=6,
)


def arrays(floats: list[float], count: int = 0) -> Tensors:
    return {"w": np.array(floats, np.float32), "tracked": np.array(count, np.int64)}


def merge(chosen: list[tuple[list[float], int, int]], total: int | None = None) -> ExactMean:
    mean = ExactMean(arrays([0] * 3), total or sum(weight for _, _, weight in chosen))
    for floats, count, weight in chosen:
        mean.add(arrays(floats, count), weight)
    return mean


@settings(max_examples=20, deadline=None)
@given(chosen=answers, data=st.data())
def test_any_order_gives_the_same_bits(
    chosen: list[tuple[list[float], int, int]], data: st.DataObject
) -> None:
    first = merge(chosen).mean()
    second = merge(data.draw(st.permutations(chosen))).mean()
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


@settings(max_examples=20, deadline=None)
@given(chosen=answers)
def test_the_mean_is_the_exact_one_to_half_a_grid_step(
    chosen: list[tuple[list[float], int, int]],
) -> None:
    mean = merge(chosen)
    total = sum(weight for _, _, weight in chosen)
    for place, got in enumerate(mean.mean()["w"]):
        parts = [Fraction(floats[place]) * weight for floats, _, weight in chosen]
        exact = sum(parts, Fraction(0)) / total
        rounding = abs(exact) * Fraction(1, 2**23)
        assert abs(Fraction(float(got)) - exact) <= Fraction(1, 2 ** (mean.bits + 1)) + rounding
    exact = Fraction(sum(count * weight for _, count, weight in chosen), total)
    assert abs(int(mean.mean()["tracked"]) - exact) <= Fraction(1, 2)


def test_it_is_numpys_weighted_mean_over_many_blocks() -> None:
    rng = np.random.default_rng(1)
    sets = [rng.standard_normal((3, BLOCK)).astype(np.float32) for _ in range(5)]
    weights = [10, 200, 3, 47, 1]
    mean = ExactMean({"w": sets[0]}, sum(weights))
    for one, weight in zip(sets, weights, strict=True):
        mean.add({"w": one}, weight)
    expected = np.average(np.array(sets, np.float64), axis=0, weights=weights)
    got = mean.mean()["w"]
    assert got.dtype == np.float32
    assert got.shape == (3, BLOCK)
    assert mean.bits == 40
    assert np.abs(got - expected.astype(np.float32)).max() <= 2.0**-23 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("total", "bits"), [(1, 40), (2**16 - 1, 40), (2**16, 39), (10**6, 36), (MAX_TOTAL_WEIGHT, 20)]
)
def test_the_grid_leaves_room_for_the_largest_sum(total: int, bits: int) -> None:
    mean = ExactMean(arrays([0] * 3), total)
    mean.add(arrays([BOUND, -BOUND, 0.0]), total)
    assert mean.bits == bits
    assert mean.mean()["w"].tolist() == [BOUND, -BOUND, 0.0]


def test_fewer_answers_than_expected_are_weighed_among_themselves() -> None:
    got = merge([([1, 2, 3], 4, 1), ([2, 4, 6], 8, 3)], total=1000).mean()
    assert got["w"].tolist() == [1.75, 3.5, 5.25]
    assert got["tracked"] == 7


def test_integers_round_to_the_nearest_and_keep_their_kind() -> None:
    got = merge([([0] * 3, -1, 1), ([0] * 3, -2, 3)]).mean()
    assert got["tracked"] == -2
    assert got["tracked"].dtype == np.int64
    assert got["tracked"].shape == ()


def test_float64_and_empty_and_strided_tensors_are_merged() -> None:
    wide = np.arange(12, dtype=np.float64).reshape(3, 4) / 8
    given_: Tensors = {"wide": wide.T, "empty": np.zeros((0, 3), np.float32)}
    mean = ExactMean(given_, 2)
    mean.add(given_, 2)
    got = mean.mean()
    assert np.array_equal(got["wide"], wide.T)
    assert got["empty"].shape == (0, 3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 64.1, -65.0])
def test_values_out_of_range_are_refused_and_nothing_of_them_is_added(bad: float) -> None:
    specs: Tensors = {"first": np.zeros(2, np.float32), "layer.weight": np.zeros(3, np.float32)}
    mean = ExactMean(specs, 10)
    mean.add({"first": np.ones(2, np.float32), "layer.weight": np.ones(3, np.float32)}, 2)
    wrong = {"first": np.full(2, 9, np.float32), "layer.weight": np.array([0, bad, 0], np.float32)}
    with pytest.raises(DataError, match=r"layer\.weight") as caught:
        mean.add(wrong, 1)
    assert caught.value.code == "merge.range"
    assert mean.weight == 2
    assert mean.mean()["first"].tolist() == [1, 1]


def test_integers_out_of_range_are_refused() -> None:
    mean = ExactMean(arrays([0] * 3), 1000)
    with pytest.raises(DataError, match="tracked"):
        mean.add(arrays([0] * 3, 2**60), 1)


@pytest.mark.parametrize("weight", [0, -1, 8])
def test_weights_that_do_not_fit_are_refused(weight: int) -> None:
    mean = ExactMean(arrays([0] * 3), 10)
    mean.add(arrays([1, 1, 1]), 3)
    with pytest.raises(DataError) as caught:
        mean.add(arrays([2, 2, 2]), weight)
    assert caught.value.code == "merge.weight"
    assert mean.mean()["w"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("total", [0, -5, MAX_TOTAL_WEIGHT + 1])
def test_a_total_weight_out_of_range_is_refused(total: int) -> None:
    with pytest.raises(DataError) as caught:
        ExactMean(arrays([0] * 3), total)
    assert caught.value.code == "merge.weight"


@pytest.mark.parametrize(
    "unlike",
    [
        {"w": np.zeros(3, np.float32)},
        {**arrays([0] * 3), "more": np.zeros(1)},
        {**arrays([0] * 3), "w": np.zeros(4, np.float32)},
        {**arrays([0] * 3), "w": np.zeros(3, np.int64)},
        {**arrays([0] * 3), "tracked": np.zeros((), np.float32)},
    ],
)
def test_another_models_answer_is_refused(unlike: Tensors) -> None:
    with pytest.raises(DataError) as caught:
        ExactMean(arrays([0] * 3), 10).add(unlike, 1)
    assert caught.value.code == "merge.shape"


def test_there_is_no_mean_of_nothing_and_none_of_words() -> None:
    with pytest.raises(DataError) as caught:
        ExactMean(arrays([0] * 3), 10).mean()
    assert caught.value.code == "merge.empty"
    with pytest.raises(DataError) as caught:
        ExactMean({"w": np.array(["a"])}, 10)
    assert caught.value.code == "merge.dtype"


def test_taking_the_mean_changes_nothing() -> None:
    mean = merge([([1, 2, 3], 4, 1)], total=4)
    mean.mean()
    mean.add(arrays([5, 6, 7], 8), 3)
    assert mean.mean()["w"].tolist() == [4, 5, 6]


@pytest.mark.skipif(native().library is None, reason="the kernels are not built")
@settings(max_examples=20, deadline=None)
@given(
    chosen=st.lists(st.floats(-BOUND, BOUND), max_size=70),
    weight=st.integers(1, MAX_TOTAL_WEIGHT),
    bits=st.integers(20, 40),
    kind=st.sampled_from([np.float32, np.float64]),
)
def test_the_kernels_leave_numpys_bits(
    chosen: list[float], weight: int, bits: int, kind: type[np.generic]
) -> None:
    values = np.array(chosen, kind)
    ours, theirs = (np.arange(len(chosen), dtype=np.uint64) for _ in range(2))
    assert kernels.add(ours, values, 2.0**bits, weight, BOUND)
    merging._add_by_numpy(theirs, values, 2.0**bits, weight)
    assert ours.tobytes() == theirs.tobytes()


@pytest.mark.skipif(native().library is None, reason="the kernels are not built")
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 64.01, -64.01, -np.nan])
@pytest.mark.parametrize("place", [0, 16, 36])
def test_the_kernels_refuse_what_does_not_fit_and_leave_nothing(
    kind: type[np.generic], wrong: float, place: int
) -> None:
    values = np.linspace(-64, 64, 37).astype(kind)
    values[place] = wrong
    cells = np.arange(37, dtype=np.uint64)
    assert not kernels.add(cells, values, 2.0**40, 12345, BOUND)
    assert (cells == np.arange(37)).all()


def test_a_set_whose_last_tensor_is_refused_leaves_nothing() -> None:
    names = {"first": np.float32(1.5), "count": np.int64(3), "second": np.float32(2)}
    good = {name: np.array([value]) for name, value in names.items()}
    mean = ExactMean(good, 10)
    mean.add(good, 2)
    with pytest.raises(DataError, match="second"):
        mean.add({**good, "second": np.array([np.nan], np.float32)}, 3)
    assert {name: array.item() for name, array in mean.mean().items()} == names


FRACTIONS = 12


@settings(max_examples=20, deadline=None)
@given(
    chosen=st.lists(
        st.tuples(st.lists(values, min_size=3, max_size=3), st.floats(2.0**-FRACTIONS, 40)),
        min_size=1,
        max_size=6,
    ),
    data=st.data(),
)
def test_fractional_weights_are_merged_exactly_in_any_order(
    chosen: list[tuple[list[float], float]], data: st.DataObject
) -> None:
    def merged(parts: list[tuple[list[float], float]]) -> ExactMean:
        mean = ExactMean(arrays([0] * 3), 256, fraction_bits=FRACTIONS)
        for floats, weight in parts:
            mean.add(arrays(floats), weight)
        return mean

    first = merged(chosen)
    second = merged(data.draw(st.permutations(chosen))).mean()
    assert all(each.tobytes() == second[name].tobytes() for name, each in first.mean().items())
    units = [Fraction(round(weight * 2**FRACTIONS)) for _, weight in chosen]
    assert Fraction(first.weight) == sum(units) / 2**FRACTIONS
    for place, got in enumerate(first.mean()["w"]):
        exact = sum(
            (
                Fraction(floats[place]) * unit
                for (floats, _), unit in zip(chosen, units, strict=True)
            ),
            Fraction(0),
        ) / sum(units)
        rounding = abs(exact) * Fraction(1, 2**23)
        assert abs(Fraction(float(got)) - exact) <= Fraction(1, 2 ** (first.bits + 1)) + rounding


@pytest.mark.parametrize(
    ("bits", "weight"), [(0, 0.5), (0, 1.5), (0, float("nan")), (4, 2.0**-6), (4, float("inf"))]
)
def test_a_weight_below_a_unit_is_refused(bits: int, weight: float) -> None:
    mean = ExactMean(arrays([0] * 3), 4, fraction_bits=bits)
    with pytest.raises(DataError, match="does not fit"):
        mean.add(arrays([1, 2, 3]), weight)
    assert mean.weight == 0


def test_the_total_of_fractional_weights_is_bounded_in_units() -> None:
    ExactMean(arrays([0] * 3), MAX_TOTAL_WEIGHT >> 16, fraction_bits=16)
    with pytest.raises(DataError, match="total weight"):
        ExactMean(arrays([0] * 3), MAX_TOTAL_WEIGHT, fraction_bits=1)


def test_a_last_mean_is_the_same_and_frees_its_sums() -> None:
    merged = merge([([0.5, -3.0, 1.0], 7, 2), ([0.25, 9.0, -1.0], 8, 3)])
    wanted = merged.mean()
    before = [weakref.ref(total.cells) for total in merged._sums.values()]
    last = merged.mean(last=True)
    assert {name: array.tobytes() for name, array in last.items()} == {
        name: array.tobytes() for name, array in wanted.items()
    }
    assert [reference() for reference in before] == [None] * len(wanted)
