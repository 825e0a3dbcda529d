"""The log of a device's agent on the device's screen."""

from __future__ import annotations

from textual.pilot import Pilot

from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.tui.screens import device as device_screen
from tests.tui.driving import drive, notices, press, screen_text, until
from tests.tui.samples import RecordingControl, dashboard, device_view, fine, snapshot

SMALL = (80, 24)
LINES = (
    "2026-03-04 14:01:00,123 INFO connected to the broker",
    "2026-03-04 14:02:00,456 WARNING a\x1b[31m odd [red] line",
)


class CountingControl(RecordingControl):
    """Counts how often a log was asked for."""

    asked = 0

    def log(self, device: str) -> tuple[str, ...]:
        self.asked += 1
        return super().log(device)


def of_fleet(*views: DeviceSnapshot) -> FeedUpdate:
    return fine(snapshot().model_copy(update={"devices": views}))


def test_l_shows_the_end_of_the_log_and_hides_it_again() -> None:
    control = RecordingControl()
    control.logs["jetson-06"] = LINES

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        assert "Its owner" not in screen_text(pilot)
        assert "Rounds" in screen_text(pilot)
        await press(pilot, "l")
        text = screen_text(pilot)
        assert "14:01:00 INFO connected to the broker" in text
        assert "14:02:00 WARNING a?[31m odd [red] line" in text
        assert "Rounds" not in text, "it takes the place of data and rounds"
        await press(pilot, "l")
        assert "connected to the broker" not in screen_text(pilot)
        assert "Rounds" in screen_text(pilot)
        assert notices(pilot) == []

    app = dashboard(of_fleet(device_view(6)), control=control, screen="devices")
    drive(app, scenario, SMALL)


def test_the_newest_lines_stay_where_not_all_fit() -> None:
    control = RecordingControl()
    control.logs["jetson-06"] = tuple(f"line {number}" for number in range(100))

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter", "l")
        text = screen_text(pilot)
        assert "line 99" in text
        assert "line 0 " not in text

    drive(dashboard(of_fleet(device_view(6)), control=control, screen="devices"), scenario, SMALL)


def test_a_log_that_is_shown_is_read_again() -> None:
    control = CountingControl()
    before, device_screen.LOG_EVERY = device_screen.LOG_EVERY, 0.05

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter", "l")
        assert "The agent has logged nothing yet." in screen_text(pilot)
        control.logs["jetson-06"] = ("one more",)
        await until(pilot, lambda: "one more" in screen_text(pilot))
        await press(pilot, "l")
        asked = control.asked
        await pilot.pause(0.3)
        assert control.asked == asked, "a hidden log is not read"

    try:
        app = dashboard(of_fleet(device_view(6)), control=control, screen="devices")
        drive(app, scenario)
    finally:
        device_screen.LOG_EVERY = before


def test_a_log_can_be_asked_for_again_after_an_error_that_is_a_bug() -> None:
    control = RecordingControl(KeyError("lines"))

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter", "l")
        assert "KeyError: 'lines'" in screen_text(pilot)
        control._error = None
        control.logs["jetson-06"] = ("there again",)
        await press(pilot, "l", "l")
        await until(pilot, lambda: "there again" in screen_text(pilot))

    drive(dashboard(of_fleet(device_view(6)), control=control, screen="devices"), scenario, SMALL)


def test_the_next_device_shows_its_own_log() -> None:
    control = RecordingControl()
    control.logs = {"jetson-06": ("of six",), "jetson-09": ("of nine",)}

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter", "l")
        assert "of six" in screen_text(pilot)
        await press(pilot, "right_square_bracket")
        assert "of nine" in screen_text(pilot)
        assert "of six" not in screen_text(pilot)

    views = (device_view(6), device_view(9))
    drive(dashboard(of_fleet(*views), control=control, screen="devices"), scenario)
