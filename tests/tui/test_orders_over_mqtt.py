"""Orders of the dashboard through a broker that is temporarily unreachable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from edgefed.cli.programs.mqtt_feed import MqttFeed
from edgefed.control import coordinator_client
from edgefed.process.clock import SystemClock
from edgefed.tui.app import Dashboard
from tests.control.test_orders import FLEET, SHORT, Scene, at_work
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


def press_resume(
    scene: Scene, prepare: Callable[[], None], ready: Callable[[Dashboard], bool]
) -> list[tuple[str, str]]:
    """Show the paused run, prepare, press the key that resumes, and return the notices."""
    feed = MqttFeed(scene.address, FLEET, SystemClock())
    app = Dashboard(feed, feed, SystemClock())
    told: list[tuple[str, str]] = []

    async def scenario(pilot: Pilot[None]) -> None:
        await until(lambda: shown_status(app) == "paused", "the paused run")
        prepare()
        await until(lambda: ready(app), "the dashboard to be ready")
        await press(pilot, "p")
        told.extend(notices(pilot))

    drive(app, scenario)
    return told


def test_a_key_pressed_while_the_broker_is_away_orders_nothing(tmp_path: Path) -> None:
    with at_work(tmp_path) as scene:
        told = press_resume(scene, scene.kill_broker, lambda app: not app.latest.broker)
        assert [title.startswith("No MQTT broker at") for title, _ in told] == [True]
        scene.restart_broker()
        assert scene.status() == "paused"
        assert scene.orders() == []


def test_a_key_pressed_while_the_broker_stands_still_orders_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_work(tmp_path) as scene:
        monkeypatch.setattr(coordinator_client, "ANSWER_TIMEOUT", SHORT)
        told = press_resume(scene, scene.stop_broker, lambda app: True)
        assert ["did not answer" in title for title, _ in told] == [True]
        scene.continue_broker()
        assert scene.status() == "paused"
        assert scene.orders() == []


def test_a_key_pressed_while_the_broker_is_there_is_carried_out(tmp_path: Path) -> None:
    with at_work(tmp_path) as scene:
        told = press_resume(scene, lambda: None, lambda app: True)
        assert [text for _, text in told] == [f"Resuming {scene.run}."]
        assert scene.orders() == [True]


def test_the_key_that_finishes_ends_a_paused_run_after_a_round(tmp_path: Path) -> None:
    with at_work(tmp_path) as scene:
        feed = MqttFeed(scene.address, FLEET, SystemClock())
        app = Dashboard(feed, feed, SystemClock())

        async def scenario(pilot: Pilot[None]) -> None:
            await until(lambda: shown_status(app) == "paused", "the paused run")
            await press(pilot, "F", "y")
            assert [title for title, _ in notices(pilot)] == [""]
            await until(lambda: shown_status(app) == "finished", "the end of the run")

        drive(app, scenario)


def test_the_screen_says_who_gave_an_order(tmp_path: Path) -> None:
    with at_work(tmp_path) as scene:
        feed = MqttFeed(scene.address, FLEET, SystemClock())
        app = Dashboard(feed, feed, SystemClock())

        async def scenario(pilot: Pilot[None]) -> None:
            await until(lambda: shown_status(app) == "paused", "the paused run")
            await press(pilot, "full_stop")
            told = "local ordered run step"
            await until(lambda: told in screen_text(pilot), "the order on the screen")

        drive(app, scenario)
