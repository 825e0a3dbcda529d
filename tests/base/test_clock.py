"""Monotonic time, and the format of timestamps."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from edgefed.process.clock import SystemClock, moment_of, timestamp


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2024, 1, 2, 3, 4, 5, 678901, timezone.utc), "2024-01-02T03:04:05.678Z"),
        (datetime(1970, 1, 1, tzinfo=timezone.utc), "1970-01-01T00:00:00.000Z"),
        (
            datetime(2024, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2))),
            "2023-12-31T23:30:00.000Z",
        ),
    ],
)
def test_moments_are_written_in_utc(moment: datetime, text: str) -> None:
    assert timestamp(moment) == text


def test_a_timestamp_is_read_again() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, 678000, timezone.utc)
    assert moment_of(timestamp(moment)) == moment
    with pytest.raises(ValueError, match="isoformat"):
        moment_of("yesterday")


def test_the_machines_clock() -> None:
    clock = SystemClock()
    first, second = clock.monotonic(), clock.monotonic()
    assert second >= first
    assert clock.now().utcoffset() == timedelta(0)
