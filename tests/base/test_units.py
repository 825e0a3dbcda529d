"""Formatting of numbers for people."""

from __future__ import annotations

import pytest

from edgefed.events.base.snapshot import TEST_COUNTS
from edgefed.terminal.units import age, clock_time, counted, score, score_of, short_time, size


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
    [(0, "00:00:00"), (2480.9, "00:41:20"), (-3, "00:00:00"), (360000, "100:00:00")],
)
def test_durations_as_a_clock(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.25, "250 ms"),
        (1, "1 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "120 min"),
        (7200, "2 h"),
    ],
)
def test_durations_in_one_unit(seconds: float, text: str) -> None:
    assert short_time(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "now"),
        (0.9, "now"),
        (3, "3 s ago"),
        (9.9, "9 s ago"),
        (14.9, "10 s ago"),
        (59, "55 s ago"),
        (69, "60 s ago"),
        (119, "110 s ago"),
        (200, "3 min ago"),
        (8000, "2 h ago"),
        (48 * 3600, "2 d ago"),
        (30 * 86400, "30 d ago"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text


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
