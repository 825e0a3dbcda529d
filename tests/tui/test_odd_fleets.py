"""Every screen of fleets without devices and with hundreds, with odd ids, and of jumping clocks."""

from __future__ import annotations

from datetime import timezone

import pytest
from textual.pilot import Pilot

from edgefed.events.base.snapshot import DeviceSnapshot, Snapshot
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import timestamp
from edgefed.tui.app import DRAW_EVERY, Dashboard
from edgefed.tui.feeds.recorded_feed import PERIOD
from edgefed.tui.keys.actions import actions_of
from edgefed.tui.tables.device_table import DeviceTable
from tests.tui.driving import drive, press, screen_text, settle, until
from tests.tui.samples import NOW, FakeClock, ago, dashboard, device_view, feed, fine, snapshot

ODD = ("[/]", "a b\tc", "\x1b[2J", "ü" * 64, "-", "%s", "地" * 20)


def of(*views: DeviceSnapshot) -> FeedUpdate:
    return fine(snapshot().model_copy(update={"devices": views}))


@pytest.mark.parametrize(("devices", "size"), [(0, (120, 36)), (200, (80, 24))])
def test_every_screen_of_no_device_and_of_many(devices: int, size: tuple[int, int]) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        for screen in actions_of("screens"):
            await press(pilot, screen.key, "G", "j", "k", "g")
            text = screen_text(pilot)
            assert "r-0142" in text
            assert max(map(len, text.splitlines())) == size[0]

    drive(dashboard(fine(snapshot(devices=devices))), scenario, size)


def test_odd_ids_do_not_reach_the_terminal() -> None:
    views = [device_view(n, device=name, state="lost") for n, name in enumerate(ODD, 1)]

    async def scenario(pilot: Pilot[None]) -> None:
        for screen in actions_of("screens"):
            await press(pilot, screen.key)
            assert not {char for char in screen_text(pilot) if ord(char) < 32 and char != "\n"}

    drive(dashboard(of(*views)), scenario, size=(80, 24))


def test_ages_stay_sensible_when_the_fleets_clock_jumps() -> None:
    day = 24 * 3600.0
    clock = FakeClock()
    view = device_view(1, state="train", seen_at=ago(3))

    def at(seconds: float) -> Snapshot:
        return snapshot(time=timestamp(NOW), devices=0).model_copy(
            update={"time": ago(-seconds), "devices": (view,)}
        )

    source = feed(clock, *(fine(at(jump)) for jump in (0.0, day, -day)))
    app = Dashboard(source, None, clock, zone=timezone.utc, screen="devices")

    def seen(pilot: Pilot[None]) -> str:
        return pilot.app.screen.query_one(DeviceTable).text("jetson-01", "seen")

    async def scenario(pilot: Pilot[None]) -> None:
        assert seen(pilot) == "3 s"
        for wanted in ("24 h", "0 s"):
            clock.seconds += PERIOD
            source.deliver()
            clock.seconds += DRAW_EVERY
            await settle(pilot)
            await until(pilot, lambda told=wanted: seen(pilot) == told)  # type: ignore[misc]
        assert "jetson-01" in screen_text(pilot)

    drive(app, scenario)


def test_without_a_coordinator_the_fleets_name_is_questioned() -> None:
    told = "Fleet plant-b has no coordinator; start one: edgefed coordinator."

    async def scenario(pilot: Pilot[None]) -> None:
        text = screen_text(pilot)
        assert "If that is not the fleet's name: edgefed --fleet NAME ui" in text
        assert "Start it:" not in text

    update = FeedUpdate(snapshot=None, broker=True, coordinator=False, problem=told)
    drive(dashboard(update), scenario)
