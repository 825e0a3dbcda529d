"""Tests that are no better than a guess, and those that may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgefed.evaluation.confusion import Confusion
from edgefed.evaluation.nothing_learned import Finding, nothing_learned


def found(
    counts: Sequence[Sequence[int]], losses: Sequence[float] = (), **changes: Any
) -> Finding | None:
    values: dict[str, Any] = {
        "rounds": 20,
        "has_statistics": False,
        "called": "abcdefghij".__getitem__,
    }
    return nothing_learned(Confusion.from_rows(counts), losses, **{**values, **changes})


def guesses(accuracy: float, classes: int = 4, each: int = 100) -> list[list[int]]:
    """Return a matrix of so many samples of each class, with the same recall for each."""
    right = round(accuracy * each)
    wrong = [(each - right) // (classes - 1)] * classes
    matrix = np.array([wrong] * classes)
    np.fill_diagonal(matrix, right)
    return [[int(count) for count in row] for row in matrix]


def test_one_class_for_all_is_named() -> None:
    """The class is the most frequent one, so that the accuracy alone looks like more."""
    finding = found([[0, 110, 0], [0, 220, 0], [0, 70, 0]])
    assert finding is not None
    assert finding.text == "it predicts b for all 400 test samples"
    assert "learning_rate" in finding.hint


@pytest.mark.parametrize(("accuracy", "is_guess"), [(0.25, True), (0.28, True), (0.31, False)])
def test_a_guess_is_told_from_what_is_learned_by_two_deviations(
    accuracy: float, is_guess: bool
) -> None:
    """With four classes of 100 samples the deviation is 0.022, by hand."""
    finding = found(guesses(accuracy))
    assert (finding is not None) == is_guess
    if finding is not None:
        assert f"no better than a guess (accuracy {accuracy:.3f})" in finding.text


def test_rare_classes_count_as_much_as_frequent_ones() -> None:
    assert found([[950, 0], [50, 0]]) is not None, "0.95 right, and all of them guessed"
    assert found([[930, 20], [15, 35]]) is None, "0.965 right"


def test_a_loss_that_falls_points_to_running_statistics_where_there_are_some() -> None:
    told = [found(guesses(0.25), (2.0, 1.1, 0.6), has_statistics=each) for each in (True, False)]
    with_statistics, without = told
    assert with_statistics is not None
    assert without is not None
    assert with_statistics.text.endswith("although the training loss fell from 2 to 0.6")
    assert "norm_momentum" in with_statistics.hint
    assert "norm_momentum" not in without.hint
    steady = found(guesses(0.25), (2.0, 1.1, 1.7), has_statistics=True)
    assert steady is not None
    assert "fell" not in steady.text
    assert "norm_momentum" not in steady.hint


@pytest.mark.parametrize(
    ("counts", "changes"),
    [
        (guesses(0.25), {"rounds": 4}),
        (guesses(0.25, each=12), {}),
        ([[80, 0], [0, 0]], {}),
    ],
)
def test_short_runs_small_tests_and_a_single_class_say_nothing(
    counts: list[list[int]], changes: dict[str, Any]
) -> None:
    assert found(counts, **changes) is None
