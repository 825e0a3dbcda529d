"""Counts by class, the averages that follow from them, and the spread over devices."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.evaluation.classification import averages, class_scores, worst_first
from edgefed.evaluation.confusion import (
    MAX_CLASSES,
    MAX_MATRIX_CLASSES,
    Confusion,
    counts_problem,
    counts_shape,
)
from edgefed.evaluation.spread import spread

CLASSES = 5
PAIRS = st.lists(st.tuples(st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1)), min_size=1)

metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")


def counts(pairs: list[tuple[int, int]], classes: int = CLASSES) -> Confusion:
    """Return the counts of true and predicted labels."""
    true, predicted = zip(*pairs, strict=True)
    return Confusion.of(true, predicted, classes)


@given(PAIRS)
@settings(deadline=None)
def test_everything_agrees_with_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    true, predicted = (list(each) for each in zip(*pairs, strict=True))
    found = counts(pairs)
    assert found.matrix is not None
    expected = metrics.confusion_matrix(true, predicted, labels=range(CLASSES))
    assert np.array_equal(found.matrix, expected)
    assert found.hits.sum() / found.samples.sum() == metrics.accuracy_score(true, predicted)
    means = averages(found)
    each = metrics.precision_recall_fscore_support(true, predicted, zero_division=0)
    recalls = metrics.recall_score(true, predicted, labels=sorted(set(true)), average="macro")
    assert means["balanced_accuracy"] == pytest.approx(recalls, rel=1e-12)
    assert means["macro_precision"] == pytest.approx(float(np.mean(each[0])), rel=1e-12)
    assert means["macro_f1"] == pytest.approx(float(np.mean(each[2])), rel=1e-12)
    shown = [score for score in class_scores(found) if score.occurs]
    assert [score.label for score in shown] == sorted({*true, *predicted})
    assert [score.precision or 0.0 for score in shown] == pytest.approx(each[0])
    assert [score.recall or 0.0 for score in shown] == pytest.approx(each[1])
    assert [score.f1 for score in shown] == pytest.approx(each[2])
    assert [score.samples for score in shown] == each[3].tolist()


@given(PAIRS, st.permutations(range(CLASSES)))
@settings(deadline=None)
def test_renumbered_classes_give_the_same_bits(
    pairs: list[tuple[int, int]], order: list[int]
) -> None:
    renumbered = counts([(order[true], order[found]) for true, found in pairs])
    assert averages(renumbered) == averages(counts(pairs))
    f1 = [each.f1 for each in class_scores(counts(pairs))]
    assert [class_scores(renumbered)[order[label]].f1 for label in range(CLASSES)] == f1


@given(st.lists(PAIRS, min_size=1, max_size=6), st.sampled_from([CLASSES, MAX_MATRIX_CLASSES + 1]))
@settings(deadline=None)
def test_the_sum_over_devices_is_that_of_their_samples_together(
    devices: list[list[tuple[int, int]]], classes: int
) -> None:
    parts = [counts(pairs, classes) for pairs in devices]
    total = Confusion.total(parts)
    together = counts(list(itertools.chain(*devices)), classes)
    assert total is not None
    assert total.counts.dtype == np.int64
    assert np.array_equal(total.counts, together.counts)
    backwards = Confusion.total(reversed(parts))
    assert backwards is not None
    assert np.array_equal(backwards.counts, total.counts)


@given(PAIRS)
@settings(deadline=None)
def test_many_classes_have_the_same_scores_without_a_matrix(pairs: list[tuple[int, int]]) -> None:
    many, few = counts(pairs, MAX_MATRIX_CLASSES + 1), counts(pairs)
    assert many.matrix is None
    assert many.counts.shape == (3, MAX_MATRIX_CLASSES + 1)
    assert averages(many) == averages(few)
    scores, expected = worst_first(class_scores(many)), worst_first(class_scores(few))
    assert [(each.label, each.f1) for each in scores] == [
        (each.label, each.f1) for each in expected
    ]


def test_the_sum_leaves_the_parts_as_they_are() -> None:
    parts = [counts([(0, 1)]), counts([(0, 1), (2, 2)])]
    Confusion.total(parts)
    assert [int(part.counts.sum()) for part in parts] == [1, 2]
    assert Confusion.total([]) is None


def test_classes_are_listed_from_the_lowest_f1_with_their_commonest_mistake() -> None:
    found = counts([*[(0, 0)] * 8, *[(1, 2)] * 3, (1, 0), (1, 1), *[(3, 4)] * 2, (3, 3)])
    rows = worst_first(class_scores(found))
    # Of classes of the same F1 the one with more samples comes first; class 2 has no samples.
    assert [each.label for each in rows] == [2, 4, 1, 3, 0]
    assert [(each.label, each.mistaken_for, each.mistaken) for each in rows][2] == (1, 2, 3)
    assert (rows[0].recall, rows[0].precision, rows[0].f1) == (None, 0.0, 0.0)
    assert (rows[-1].mistaken_for, rows[-1].mistaken) == (None, 0)
    assert rows[3].recall == pytest.approx(1 / 3)
    assert rows[3].precision == 1.0


def test_nothing_tested_has_no_averages() -> None:
    assert averages(Confusion(np.zeros((3, 3), np.int64))) == {}


@pytest.mark.parametrize(
    ("classes", "shape"),
    [
        (1, None),
        (2, (2, 2)),
        (3, (3, 3)),
        (MAX_MATRIX_CLASSES, (MAX_MATRIX_CLASSES,) * 2),
        (MAX_MATRIX_CLASSES + 1, (3, MAX_MATRIX_CLASSES + 1)),
        (MAX_CLASSES, (3, MAX_CLASSES)),
        (MAX_CLASSES + 1, None),
    ],
)
def test_what_is_counted_is_bounded(classes: int, shape: tuple[int, int] | None) -> None:
    assert counts_shape(classes) == shape


GOOD = [[3, 1], [0, 2]]


@pytest.mark.parametrize(
    ("rows", "samples", "hits", "reason"),
    [
        (GOOD, 6, 5, ""),
        ([[3, -1], [2, 2]], 6, 5, "fewer than no samples"),
        (GOOD, 7, 5, "6 true labels of 7 samples"),
        (GOOD, 6, 4, "5 right predictions, its accuracy 4"),
    ],
)
def test_counts_that_are_not_those_of_the_test_are_told(
    rows: list[list[int]], samples: int, hits: int, reason: str
) -> None:
    found = counts_problem(Confusion(np.array(rows, np.int64)), samples, hits)
    assert (reason in found) if reason else found == ""


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([[4, 2], [4, 3], [3, 2]], "7 predicted labels of 6 samples"),
        ([[1, 5], [5, 1], [1, 2]], "more right predictions of a label"),
        ([[4, 2], [2, 4], [2, 2]], ""),
    ],
)
def test_sums_of_many_classes_fit_together(rows: list[list[int]], reason: str) -> None:
    many = np.zeros((3, MAX_MATRIX_CLASSES + 1), np.int64)
    many[:, :2] = rows
    found = counts_problem(Confusion(many), 6, int(many[2].sum()))
    assert (reason in found) if reason else found == ""


@pytest.mark.parametrize("rows", [[[1, 2, 3]], [[1, 2]], [1, 2], [[1, -1], [0, 1]], [[0] * 3] * 2])
def test_rows_that_are_no_counts_are_refused(rows: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=r"rows|counts|index"):
        Confusion.from_rows(rows)


def test_counts_come_back_from_rows() -> None:
    assert Confusion.from_rows(GOOD).rows() == GOOD


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_the_spread_is_defined_for_any_number_of_devices(values: list[float]) -> None:
    found = spread("accuracy", values)
    assert found["accuracy_worst"] == min(values)
    assert found["accuracy_p10"] == pytest.approx(float(np.percentile(values, 10)), abs=1e-12)
    assert found["accuracy_median"] == pytest.approx(statistics.median(values), abs=1e-12)
    assert spread("accuracy", reversed(values)) == found
    assert all(math.isfinite(each) for each in found.values())


def test_no_device_has_no_spread() -> None:
    assert spread("accuracy", []) == {}
