"""Runs and orders of the dashboard through a broker and a coordinator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from edgefed.cli.programs.mqtt_feed import MqttFeed
from edgefed.process.clock import SystemClock
from edgefed.tui.app import Dashboard
from tests.control.test_orders import FLEET, at_work
from tests.transport.listening import PATIENCE
from tests.tui.driving import drive, notices, press, screen_text

pytestmark = pytest.mark.mosquitto


async def until(condition: Callable[[], object], what: str) -> None:
    """Return once a condition holds; the app goes on meanwhile."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        await asyncio.sleep(0.05)


def shown_status(app: Dashboard) -> str:
    snapshot = app.latest.snapshot
    return snapshot.run.status if snapshot is not None and snapshot.run is not None else ""


def test_runs_are_shown_and_orders_carried_out_with_the_name_of_who_gave_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dashboard, "NOTIFICATION_TIMEOUT", 3600.0)
    with at_work(tmp_path) as scene:
        feed = MqttFeed(scene.address, FLEET, SystemClock())
        app = Dashboard(feed, feed, SystemClock(), screen="runs", runs=feed)

        async def scenario(pilot: Pilot[None]) -> None:
            await until(lambda: "digits-fedavg" in screen_text(pilot), "the list of runs")
            await press(pilot, "enter")
            await until(lambda: f"A {scene.run}" in screen_text(pilot), "the run's screen")
            assert "paused" in screen_text(pilot)
            await press(pilot, "escape", "1")
            await until(lambda: shown_status(app) == "paused", "the paused run")
            await press(pilot, "full_stop")
            told = "local ordered run step"
            await until(lambda: told in screen_text(pilot), "the order on the screen")
            await press(pilot, "F", "y")
            assert [title for title, _ in notices(pilot)] == ["", ""]
            await until(lambda: shown_status(app) == "finished", "the end of the run")

        drive(app, scenario)
