"""Formatting of numbers for people."""

from __future__ import annotations

import pytest

from edgefed.events.base.snapshot import TEST_COUNTS
from edgefed.terminal.units import (
    age,
    ago,
    counted,
    duration,
    score,
    score_of,
    size,
    time_left,
    used_of,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1258291, "1.2 MiB"),
        (3 * 1024**3, "3.0 GiB"),
        (5 * 1024**4, "5.0 TiB"),
        (5000 * 1024**4, "5000.0 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_bytes(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0, "0 s"),
        (0.25, "250 ms"),
        (0.9999, "1 s"),
        (1, "1 s"),
        (4.25, "4.2 s"),
        (9.96, "10 s"),
        (99.4, "99 s"),
        (99.6, "1 min 40 s"),
        (120, "2 min"),
        (2480.9, "41 min 21 s"),
        (5999, "99 min 59 s"),
        (6000, "1 h 40 min"),
        (7259, "2 h"),
        (47 * 3600 + 120, "47 h 02 min"),
        (48 * 3600, "2 d"),
        (50 * 3600 + 59 * 60, "2 d 02 h"),
        (400 * 86400, "400 d"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("seconds", [0.25, 4.25, 48, 179, 5999, 6000, 100_000, 200_000])
def test_a_duration_in_one_unit_is_the_first_part_of_that_in_two(seconds: float) -> None:
    first = " ".join(duration(seconds).split()[:2])
    assert duration(seconds, 1) == first


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "1 s"), (0.2, "1 s"), (47.1, "48 s"), (125, "2 min 05 s")]
)
def test_a_wait_is_never_over_before_its_end(seconds: float, text: str) -> None:
    assert time_left(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0 s"), (0.9, "0 s"), (48.9, "45 s"), (130, "2 min"), (99 * 60 + 59, "99 min"),
     (7200, "2 h"), (200 * 3600, "8 d"), (999.9 * 86400, "999 d")],
)  # fmt: skip
def test_ages_fit_a_narrow_column(seconds: float, shown: str) -> None:
    assert age(seconds) == shown
    assert len(shown) <= 6


@pytest.mark.parametrize(
    ("used", "total", "text"),
    [
        (3.1 * 1024**3, 7.6 * 1024**3, "3.1 of 7.6 GiB"),
        (512 * 1024**2, 8 * 1024**3, "0.5 of 8.0 GiB"),
        (62 * 1024**3, 123.4 * 1024**3, "62.0 of 123 GiB"),
        (3 * 1024**3, None, "3.0 GiB"),
        (3 * 1024**3, 0, "3.0 GiB"),
    ],
)
def test_memory_in_use_of_all(used: float, total: float | None, text: str) -> None:
    assert used_of(used, total) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "now"),
        (0.9, "now"),
        (3, "3 s ago"),
        (9.9, "9 s ago"),
        (14.9, "10 s ago"),
        (59, "55 s ago"),
        (119, "1 min ago"),
        (200, "3 min ago"),
        (8000, "2 h ago"),
        (48 * 3600, "2 d ago"),
        (30 * 86400, "30 d ago"),
    ],
)
def test_how_long_ago_something_was(seconds: float, text: str) -> None:
    assert ago(seconds) == text


@pytest.mark.parametrize(
    ("accuracy", "loss", "told"),
    [
        (0.91234, 0.5, "accuracy 0.912"),
        (0.0, None, "accuracy 0.000"),
        (None, 0.0123, "loss 0.0123"),
        (None, 0.0, "loss 0"),
        (None, None, ""),
    ],
)
def test_a_score_is_the_accuracy_or_else_the_loss(
    accuracy: float | None, loss: float | None, told: str
) -> None:
    assert score(accuracy, loss) == told


def test_a_score_has_as_many_digits_as_are_asked_for() -> None:
    assert score(0.91234, None, shown=".4f") == "accuracy 0.9123"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 replies"), (1, "1 reply"), (2, "2 replies"), (1000, "1000 replies")]
)
def test_a_number_with_its_noun(count: int, text: str) -> None:
    assert counted(count, "reply", "replies") == text
    assert counted(count, "sample").endswith("sample" if count == 1 else "samples")


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ((1, 4, 3, 10), "accuracy 1.000 · 1 of 4 devices · 3 of 10 labels"),
        ((4, 4, 0, 0), "accuracy 1.000 · 4 of 4 devices"),
        ((0, 0, 10, 10), "accuracy 1.000 · 10 of 10 labels"),
        ((0, 0, 0, 0), "accuracy 1.000"),
    ],
)
def test_a_score_says_who_tested(counts: tuple[int, ...], text: str) -> None:
    fields = dict(zip(TEST_COUNTS, counts, strict=True))
    assert score_of({"accuracy": 1.0, "loss": 0.1, **fields}) == text
    assert score_of({"accuracy": None, **fields}) == ""
    assert score_of({"accuracy": 1.0}) == "accuracy 1.000"
