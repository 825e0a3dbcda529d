"""The courses of temperature, power and memory that the dashboard keeps."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest
from textual.pilot import Pilot

from edgefed.events.base.snapshot import DeviceSnapshot, Snapshot
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import timestamp
from edgefed.tui.app import Dashboard
from edgefed.tui.feeds.recorded_feed import PERIOD
from edgefed.tui.look.text_format import trend
from edgefed.tui.state.telemetry_history import EVERY, MAX_READINGS, TelemetryHistory
from tests.tui.driving import drive, press, screen_text, settle
from tests.tui.samples import MIB, NOW, FakeClock, device_view, feed, fine


def at(seconds: float, *views: DeviceSnapshot) -> Snapshot:
    return Snapshot(time=timestamp(NOW + timedelta(seconds=seconds)), devices=views)


def warm(temperature: float | None, **changes: object) -> DeviceSnapshot:
    known: dict[str, object] = {"temperature": temperature, "power": None, "memory": None}
    return device_view(1, **{**known, **changes})


def course(history: TelemetryHistory, until: float, columns: int) -> list[float | None]:
    end = NOW + timedelta(seconds=until)
    return history.course("jetson-01", "temperature", end, columns)


def test_a_course_has_one_value_for_each_part_of_the_time() -> None:
    history = TelemetryHistory()
    for step in range(4):
        history.take(at(10 * step, warm(40.0 + step)))
    assert course(history, 40, 4) == [40.0, 41.0, 42.0, 43.0]
    assert course(history, 40, 2) == [41.0, 43.0]
    assert course(history, 80, 8) == [40.0, 41.0, 42.0, 43.0, 43.0, 43.0, 43.0, 43.0]
    assert history.span("jetson-01", NOW + timedelta(seconds=40)) == 40


def test_a_frozen_display_shows_only_what_was_known_then() -> None:
    history = TelemetryHistory()
    for step in range(4):
        history.take(at(10 * step, warm(40.0 + step)))
    assert course(history, 15, 2) == [40.0, 41.0]


def test_what_was_not_measured_is_a_gap() -> None:
    history = TelemetryHistory()
    for seconds, value in ((0, None), (10, 50.0), (20, 60.0)):
        history.take(at(seconds, warm(value, power=5.0)))
    assert course(history, 30, 3) == [None, 50.0, 60.0]
    assert trend([None, 50.0, 60.0]) == " ▁█"
    assert history.course("jetson-01", "memory", NOW, 3) == [None] * 3
    assert course(TelemetryHistory(), 30, 3) == []


def test_readings_are_taken_as_often_as_an_agent_measures_and_only_so_many_are_kept() -> None:
    history = TelemetryHistory()
    for number in range(3 * MAX_READINGS):
        history.take(at(number * EVERY / 2, warm(float(number))))
    end = 3 * MAX_READINGS * EVERY / 2
    kept = history._readings["jetson-01"]
    assert len(kept) == 4 * MAX_READINGS
    assert list(kept[1::4]) == [float(n) for n in range(3 * MAX_READINGS) if n % 2 == 0][-120:]
    assert history.span("jetson-01", NOW + timedelta(seconds=end)) == MAX_READINGS * EVERY


def test_a_device_that_did_not_change_is_not_looked_at() -> None:
    history, view = TelemetryHistory(), warm(40.0)
    history.take(at(0, view))
    history.take(at(100, view))
    assert len(history._readings["jetson-01"]) == 4


def test_a_device_that_is_lost_adds_nothing_and_one_that_is_gone_is_forgotten() -> None:
    history = TelemetryHistory()
    history.take(at(0, warm(40.0)))
    history.take(at(20, warm(41.0, state="lost")))
    assert len(history._readings["jetson-01"]) == 4
    history.take(at(30))
    assert (history._readings, history._views) == ({}, {})


def test_a_clock_that_is_set_back_begins_anew() -> None:
    history = TelemetryHistory()
    history.take(at(500, warm(40.0)))
    history.take(at(0, warm(50.0)))
    assert course(history, 10, 1) == [50.0]


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([], ""), ([5.0, 5.0], "▁▁"), ([0.0, 3.5, 7.0], "▁▅█"), ([-2.0, None, -1.0], "▁ █")],
)
def test_a_trend_runs_from_the_least_to_the_largest(values: list[float | None], drawn: str) -> None:
    assert trend(values) == drawn


def test_the_devices_screen_draws_the_courses() -> None:
    clock = FakeClock()
    updates: list[FeedUpdate] = [
        fine(
            at(
                10.0 * step, warm(40.0 + step, power=9.0 - step, memory=(600 + step) * MIB)
            ).model_copy(update={"fleet": "plant-a"})
        )
        for step in range(5)
    ]
    source = feed(clock, *updates)
    app = Dashboard(source, None, clock, zone=timezone.utc, screen="devices")

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        assert "courses" not in screen_text(pilot)
        for _ in updates[1:]:
            clock.seconds += PERIOD
            source.deliver()
            await settle(pilot)
        lines = screen_text(pilot).splitlines()
        facts = {
            word: line
            for line in lines
            for word in ("temperature", "power", "machine RAM")
            if word in line
        }
        assert "44 °C" in facts["temperature"]
        assert facts["temperature"].index("▁") < facts["temperature"].index("█")
        assert facts["power"].index("█") < facts["power"].index("▁")
        assert facts["machine RAM"].index("▁") < facts["machine RAM"].index("█")
        assert any("courses of 40 s" in line for line in lines), screen_text(pilot)

    drive(app, scenario, (80, 24))
