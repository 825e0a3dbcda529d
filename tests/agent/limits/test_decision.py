"""Limits, readings and times by hand: when a device may train, and until when it may not."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from device_agent.limits.decision import DayUse, Pause, Readings, decide
from edgefed.config.fleet.when_settings import WhenSettings

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 11, 25, 12, 0, tzinfo=timezone.utc)  # a Wednesday


def berlin(text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold)


@pytest.mark.parametrize(
    ("hours", "now", "until"),
    [
        ("22:00-06:00", "2026-11-25 21:59", "2026-11-25 22:00"),
        ("22:00-06:00", "2026-11-25 22:00", ""),
        ("22:00-06:00", "2026-11-26 05:59", ""),
        ("22:00-06:00", "2026-11-26 06:00", "2026-11-26 22:00"),
        # A window belongs to the day on which it begins.
        ("fri 22:00-06:00", "2026-11-28 05:59", ""),
        ("fri 22:00-06:00", "2026-11-27 05:59", "2026-11-27 22:00"),
        ("sat 08:00-20:00", "2026-11-28 20:00", "2026-12-05 08:00"),
        ("sat-mon 10:00-11:00", "2026-11-30 10:30", ""),  # a Monday
        ("sat-mon 10:00-11:00", "2026-12-01 10:30", "2026-12-05 10:00"),
        # Two windows without a gap are one.
        ("20:00-24:00,00:00-02:00", "2026-11-26 00:00", ""),
        ("20:00-24:00,00:00-02:00", "2026-11-25 12:00", "2026-11-25 20:00"),
        # On 29 March 2026 the clocks go from 02:00 to 03:00, on 25 October from 03:00 to 02:00.
        ("04:00-05:00", "2026-03-29 01:30", "2026-03-29 04:00"),
        ("02:00-03:00", "2026-03-29 03:00", "2026-03-30 02:00"),
        ("04:00-05:00", "2026-10-25 01:30", "2026-10-25 04:00"),
    ],
)
def test_hours_open_and_close(hours: str, now: str, until: str) -> None:
    when = WhenSettings.model_validate({"hours": hours})
    pause = decide(when, Readings(), DayUse(), berlin(now), BERLIN)
    assert (pause is None) == (not until)
    if pause is not None:
        assert pause.until == berlin(until)
        assert pause.reason == "outside its hours"


def test_an_hour_that_the_clocks_repeat_is_open_twice_and_waited_for_in_real_seconds() -> None:
    when = WhenSettings.model_validate({"hours": "02:30-03:00"})
    for fold in (0, 1):
        assert decide(when, Readings(), DayUse(), berlin("2026-10-25 02:45", fold), BERLIN) is None
        now = berlin("2026-10-25 02:10", fold)
        pause = decide(when, Readings(), DayUse(), now, BERLIN)
        assert pause is not None and pause.seconds_left(now.astimezone(timezone.utc)) == 20 * 60
    # From 01:30 to 04:00 there are 3.5 hours.
    pause = decide(
        WhenSettings.model_validate({"hours": "04:00-05:00"}),
        *(Readings(), DayUse(), berlin("2026-10-25 01:30"), BERLIN),
    )
    assert pause is not None
    assert pause.seconds_left(berlin("2026-10-25 01:30").astimezone(timezone.utc)) == 3.5 * 3600


def test_a_clock_that_is_not_set_opens_no_window() -> None:
    when = WhenSettings.model_validate({"hours": "00:00-24:00"})
    unset = datetime(1970, 1, 1, 3, tzinfo=timezone.utc)
    pause = decide(when, Readings(), DayUse(), unset, timezone.utc)
    assert pause == Pause(frozenset({"hours"}), "its clock is not set", None)
    assert decide(when, Readings(), DayUse(), NOON, timezone.utc) is None


@pytest.mark.parametrize(
    ("limit", "fine", "passed", "still_passed", "fine_again"),
    [
        ({"highest_temperature": 70.0}, 70.0, 70.1, 65.1, 65.0),
        ({"least_battery": 30.0}, 30.0, 29.0, 34.0, 35.0),
        ({"least_battery": 98.0}, 98.0, 97.0, 99.0, 100.0),
        ({"highest_load": 20.0}, 20.0, 20.5, 16.5, 16.0),
        ({"least_memory": 1000}, 1000, 999, 1099, 1100),
        ({"least_disk": 1000}, 1000, 999, 1099, 1100),
        ({"on_mains": True}, True, False, False, True),
        ({"metered": False}, False, True, True, False),
    ],
)
def test_a_limit_is_passed_until_there_is_some_margin(
    limit: dict[str, Any], fine: Any, passed: Any, still_passed: Any, fine_again: Any
) -> None:
    (name,) = limit
    sensor = name.rpartition("_")[2]
    when = WhenSettings(**limit)

    def at(value: Any, before: Pause | None = None) -> Pause | None:
        return decide(
            when, replace(Readings(), **{sensor: value}), DayUse(), NOON, timezone.utc, before
        )

    assert at(fine) is None
    pause = at(passed)
    assert pause is not None and pause.limits == {name} and pause.until is None
    assert at(still_passed, pause) is not None
    assert at(fine_again, pause) is None
    assert at(None) is None  # without the sensor the limit does not apply
    other = Pause(frozenset({"hours"}), "", None)
    assert at(fine, other) is None


def test_what_a_day_allows_ends_at_midnight_of_the_device() -> None:
    when = WhenSettings(rounds_a_day=2, bytes_a_day=1000)
    late = berlin("2026-03-28 23:00")
    use = DayUse(late.date(), rounds=2, bytes=999)
    pause = decide(when, Readings(), use, late, BERLIN)
    assert pause is not None and pause.reason == "it trained in 2 rounds today"
    assert pause.until == berlin("2026-03-29 00:00")
    assert decide(when, Readings(), replace(use, rounds=1), late, BERLIN) is None
    pause = decide(when, Readings(), replace(use, rounds=1, bytes=1000), late, BERLIN)
    assert pause is not None and pause.limits == {"bytes_a_day"}
    yesterday = replace(use, day=date(2026, 3, 27))
    assert decide(when, Readings(), yesterday, late, BERLIN) is None


def test_several_reasons_are_told_with_the_last_known_end() -> None:
    when = WhenSettings(hours=("13:00-14:00",), least_battery=20.0, rounds_a_day=0)
    readings, use = Readings(battery=12.0), DayUse(NOON.date())
    pause = decide(when, readings, use, NOON, timezone.utc)
    assert pause is not None and pause.limits == {"hours", "least_battery", "rounds_a_day"}
    assert pause.reason == (
        "outside its hours; battery 12 % (goes on at 25 %); it trained in 0 rounds today"
    )
    assert pause.until == datetime(2026, 11, 26, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "text", ["22:00", "25:00-26:00", "wen 08:00-09:00", "8:00-9:00", "", "mon"]
)
def test_other_texts_are_no_hours(text: str) -> None:
    with pytest.raises(ValueError, match="must be like"):
        WhenSettings.model_validate({"hours": [text]})
    with pytest.raises(ValueError, match="a whole day is 00:00-24:00"):
        WhenSettings(hours=("08:00-08:00",))
