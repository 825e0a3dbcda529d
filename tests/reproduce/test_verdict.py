"""Verdicts on claims, for handwritten cells."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from edgefed.reproduce.table import Claim, PaperColumn, Published, read_claim
from edgefed.reproduce.verdict import Verdict, judge

EASY = PaperColumn("easy one", "easy", {})
HARD = PaperColumn("hard one", "hard", {})
Cells = Mapping[tuple[str, str], list[float]]


def read(claim: str) -> Claim:
    return read_claim(claim, ("A", "B"))


def judged(claim: Claim, cells: Cells, *columns: PaperColumn) -> list[Verdict]:
    """Judge cells given as lists over seeds 1, 2, …; NaN is a seed that was not run."""

    def values(row: str, column: PaperColumn) -> Mapping[int, float]:
        found = enumerate(cells.get((row, column.of), []), 1)
        return {seed: value for seed, value in found if not math.isnan(value)}

    return judge(claim, columns or (EASY, HARD), values, lambda *_: None)


@pytest.mark.parametrize(
    ("better", "word"),
    [
        ([0.80, 0.82, 0.81], "yes"),
        ([0.60, 0.62, 0.61], "no"),
        ([0.70, 0.76, 0.67], "within the noise"),
        ([0.70, 0.71, 0.72], "within the noise"),
    ],
)
def test_an_order_in_one_column(better: list[float], word: str) -> None:
    cells = {("A", "easy"): better, ("B", "easy"): [0.70, 0.71, 0.72]}
    (verdict,) = judged(read("A > B | easy"), cells)
    assert (verdict.claim, verdict.column, verdict.word) == ("A > B", "easy one", word)


def test_the_noise_is_students_interval_of_differences_by_seed() -> None:
    # Both rows vary by 30 points with the seed, and their difference is always 1 to 3.
    cells = {("A", "easy"): [0.51, 0.72, 0.83], ("B", "easy"): [0.50, 0.70, 0.80]}
    (verdict,) = judged(read("A > B | easy"), cells)
    assert verdict.mean == pytest.approx(0.02)
    assert verdict.noise == pytest.approx(4.303 * 0.01 / math.sqrt(3), rel=1e-3)
    assert verdict.word == "within the noise"
    cells = {("A", "easy"): [0.52, 0.72, 0.821], ("B", "easy"): [0.50, 0.70, 0.80]}
    assert judged(read("A > B | easy"), cells)[0].word == "yes"


def test_a_claim_about_each_column_has_a_verdict_for_each() -> None:
    cells = {
        ("A", "easy"): [0.9, 0.9],
        ("B", "easy"): [0.8, 0.8],
        ("A", "hard"): [0.3, 0.3],
        ("B", "hard"): [0.4, 0.4],
    }
    found = judged(read("A > B"), cells)
    assert [(each.column, each.word) for each in found] == [("easy one", "yes"), ("hard one", "no")]


def test_a_claim_along_columns() -> None:
    cells = {("A", "easy"): [0.9, 0.91], ("A", "hard"): [0.5, 0.51]}
    (verdict,) = judged(read("A: easy > hard"), cells)
    assert (verdict.column, verdict.word, verdict.claim) == ("", "yes", "A: easy > hard")
    assert judged(read("A: hard > easy"), cells)[0].word == "no"


def test_a_row_that_loses_less_than_another() -> None:
    cells = {
        ("A", "easy"): [0.90, 0.91],
        ("A", "hard"): [0.80, 0.81],
        ("B", "easy"): [0.95, 0.96],
        ("B", "hard"): [0.60, 0.61],
    }
    (verdict,) = judged(read("A loses less than B from easy to hard"), cells)
    assert verdict.word == "yes"
    assert verdict.mean == pytest.approx(0.25)
    assert judged(read("B loses less than A from easy to hard"), cells)[0].word == "no"


def test_alike_is_no_more_apart_than_the_noise() -> None:
    near = {("A", "easy"): [0.70, 0.72, 0.74], ("B", "easy"): [0.71, 0.70, 0.75]}
    assert judged(read("A ≈ B | easy"), near)[0].word == "yes"
    far = {("A", "easy"): [0.70, 0.72, 0.74], ("B", "easy"): [0.50, 0.52, 0.54]}
    assert judged(read("A ≈ B | easy"), far)[0].word == "no"
    steps = {("A", "easy"): [0.7, 0.7], ("A", "hard"): [0.6, 0.61]}
    assert judged(read("A: easy ≈ hard"), steps)[0].word == "no"


def test_what_was_not_run_is_unknown_and_told() -> None:
    (verdict,) = judged(read("A > B | easy"), {("A", "easy"): [0.9, 0.9]})
    assert (verdict.word, verdict.reason, verdict.mean) == ("unknown", "not run: B", None)
    (verdict,) = judged(read("A > B | elsewhere"), {})
    assert (verdict.word, verdict.reason) == ("unknown", "a column is not run at this scale")


def test_one_seed_is_no_measure_of_noise() -> None:
    cells = {("A", "easy"): [0.9], ("B", "easy"): [0.1]}
    (verdict,) = judged(read("A > B | easy"), cells)
    assert (verdict.word, verdict.noise) == ("unknown", None)
    assert verdict.mean == pytest.approx(0.8)
    assert "one seed" in verdict.reason


def test_published_deviations_are_the_noise_of_one_seed() -> None:
    """By hand: 1.96 * sqrt(0.3² + 0.4²) = 0.98 points."""
    cells = {("A", "easy"): [0.90], ("B", "easy"): [0.895]}
    numbers = {
        (row, "easy"): Published(row, "easy", value, "test", noise)
        for row, value, noise in (("A", 90.0, 0.3), ("B", 89.0, 0.4))
    }

    def judge_one(cells: dict[tuple[str, str], list[float]]) -> Verdict:
        columns = [PaperColumn("easy", "easy", {})]
        (verdict,) = judge(
            read("A > B | easy"),
            columns,
            lambda row, column: dict(enumerate(cells[row, column.of])),
            lambda row, column: numbers.get((row, column)),
        )
        return verdict

    verdict = judge_one(cells)
    assert verdict.word == "within the noise"
    assert verdict.noise == pytest.approx(0.0098)
    assert "published deviations" in verdict.reason
    assert judge_one({**cells, ("B", "easy"): [0.88]}).word == "yes"
    several = judge_one({("A", "easy"): [0.9, 0.91], ("B", "easy"): [0.89, 0.9]})
    assert (several.word, several.reason) == ("yes", "")
    assert several.noise == pytest.approx(0, abs=1e-9)


def test_only_seeds_that_ran_all_cells_count() -> None:
    cells = {("A", "easy"): [0.9, 0.9, math.nan], ("B", "easy"): [0.8, math.nan, 0.8]}
    assert judged(read("A > B | easy"), cells)[0].mean == pytest.approx(0.1)
    cells = {("A", "easy"): [0.9, math.nan], ("B", "easy"): [math.nan, 0.8]}
    assert judged(read("A > B | easy"), cells)[0].reason == "no seed ran all of its cells"


@pytest.mark.parametrize(
    ("own", "word"),
    [
        ([0.80, 0.82, 0.81], "yes"),
        ([0.69, 0.76, 0.67], "yes"),
        ([0.60, 0.62, 0.61], "no"),
    ],
)
def test_a_row_that_does_no_harm(own: list[float], word: str) -> None:
    cells = {("A", "easy"): own, ("B", "easy"): [0.70, 0.71, 0.72]}
    (verdict,) = judged(read("A ≥ B | easy"), cells)
    assert (verdict.claim, verdict.word) == ("A ≥ B", word)


def test_the_papers_own_numbers_stand_beside_a_verdict() -> None:
    values = {("A", "easy"): 46.90, ("B", "easy"): 52.53, ("A", "hard"): 30.0}

    def numbers(row: str, column: str) -> Published | None:
        value = values.get((row, column))
        return None if value is None else Published(row, column, value, "made up")

    def sums(claim: Claim, *columns: PaperColumn) -> list[float | None]:
        found = judge(claim, columns or (EASY, HARD), lambda *_: {}, numbers)
        return [verdict.published for verdict in found]

    assert sums(read("A > B")) == [pytest.approx(-0.0563), None]
    assert sums(read("A ≥ B | easy")) == [pytest.approx(-0.0563)]
    assert sums(read("A: easy > hard")) == [pytest.approx(0.169)]
    assert sums(read("A: easy > hard"), EASY) == [pytest.approx(0.169)], "not run, but known"
