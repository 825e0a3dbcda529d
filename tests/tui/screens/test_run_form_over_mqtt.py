"""A run that is started from the screen, by a real coordinator."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from textual.pilot import Pilot

from broker.mosquitto import MosquittoBroker
from edgefed.cli.programs.mqtt_feed import MqttFeed
from edgefed.cli.programs.run_launcher import RunLauncher
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.write import to_toml
from edgefed.process.clock import SystemClock
from edgefed.tui.app import Dashboard
from edgefed.tui.screens.overview import OverviewScreen
from edgefed.tui.screens.run_form import RunFormScreen
from tests.coordinator.storage.test_service_orders import plan, serving
from tests.tui.driving import drive, notices, press, screen_text, until

pytestmark = pytest.mark.mosquitto


def test_a_run_is_started_shown_and_started_again(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    (tmp_path / "plan.toml").write_text(to_toml(plan()))
    with ExitStack() as stack:
        service = stack.enter_context(serving(mosquitto, tmp_path / "state"))
        feed = MqttFeed(mosquitto.address, "review", SystemClock())
        around = Surroundings({"HOME": str(tmp_path)}, tmp_path)
        launcher = RunLauncher(feed.coordinator, around)
        app = Dashboard(feed, feed, SystemClock(), launcher=launcher)

        async def scenario(pilot: Pilot[None]) -> None:
            await until(pilot, lambda: app.latest.snapshot is not None)
            await press(pilot, "n", "enter")
            assert isinstance(app.screen, RunFormScreen)
            await press(
                pilot, "slash", *"rounds.count", "enter", "enter", "backspace", "1", "enter"
            )
            await press(pilot, "ctrl+j")
            await until(pilot, lambda: isinstance(app.screen, OverviewScreen))
            first = service._store.runs()[0].run
            await until(pilot, lambda: f"Run {first} ── finished" in screen_text(pilot))
            assert service._store.run(first).rounds == 1
            await press(pilot, "n", "end", "enter")
            assert f"New run from run {first}" in screen_text(pilot)
            service._jobs["r-busy"] = object()  # type: ignore[assignment]
            await press(pilot, "ctrl+j")
            assert isinstance(app.screen, RunFormScreen)
            assert "Run r-busy is at work." in [title for title, _ in notices(pilot)]
            del service._jobs["r-busy"]
            await press(pilot, "ctrl+j")
            await until(pilot, lambda: isinstance(app.screen, OverviewScreen))
            assert len(service._store.runs()) == 2
            await until(pilot, lambda: service._store.runs()[0].status == "finished")

        drive(app, scenario)
        newest, oldest = service._store.runs()
        assert newest.recipe == oldest.recipe
