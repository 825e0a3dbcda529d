"""Closing, starting, and small windows: what the screen says agrees with what happens."""

from __future__ import annotations

from datetime import timezone

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.tui.app import Dashboard
from edgefed.tui.feeds.recorded_feed import RecordedFeed
from edgefed.tui.screens.close import CloseScreen
from edgefed.tui.screens.overview import OverviewScreen
from edgefed.tui.state.closing import ENDS_DEMO, ENDS_FLEET, WATCHES, Closing
from tests.tui.driving import drive, notices, press, screen_text, tell
from tests.tui.samples import (
    FakeClock,
    RecordingControl,
    dashboard,
    device_view,
    feed,
    fine,
    round_views,
    run_view,
    snapshot,
)

STARTING = "Starting r-0142: the devices connect."


def opened(
    *updates: FeedUpdate, closing: Closing = WATCHES, starting: str = "", silent: bool = False
) -> Dashboard:
    clock = FakeClock()
    source = (
        RecordedFeed([], clock, play=False)
        if silent
        else feed(clock, *(updates or (fine(snapshot()),)))
    )
    return Dashboard(
        source, RecordingControl(), clock, zone=timezone.utc, closing=closing, starting=starting
    )


@pytest.mark.parametrize("closing", [WATCHES, ENDS_DEMO])
def test_ctrl_q_closes_at_once_where_nothing_else_ends(closing: Closing) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "ctrl+q")
        assert pilot.app._exit

    drive(opened(closing=closing), scenario)


def test_ctrl_q_asks_once_where_the_coordinator_ends_too() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        for answer in ("escape", "q", "n", "enter"):
            await press(pilot, "ctrl+q")
            assert isinstance(pilot.app.screen, CloseScreen)
            assert "The coordinator ends too" in screen_text(pilot)
            await press(pilot, answer)
            assert isinstance(pilot.app.screen, OverviewScreen)
            assert not pilot.app._exit
        await press(pilot, "ctrl+q", "ctrl+q")
        assert pilot.app._exit

    drive(opened(closing=ENDS_FLEET), scenario)


def test_the_question_before_closing_can_be_answered_by_its_button() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "ctrl+q", "tab", "enter")
        assert pilot.app._exit

    drive(opened(closing=ENDS_FLEET), scenario)


@pytest.mark.parametrize("closing", [WATCHES, ENDS_FLEET])
def test_the_help_page_says_what_ends(closing: Closing) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "question_mark")
        notes = str(pilot.app.screen.query_one("#help-notes", Static).content)
        assert [each for each in (WATCHES, ENDS_FLEET, ENDS_DEMO) if each.note in notes] == [
            closing
        ]

    drive(opened(closing=closing), scenario)


@pytest.mark.parametrize("silent", [False, True])
def test_a_dashboard_of_a_started_run_says_that_it_starts(silent: bool) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        text = screen_text(pilot)
        assert STARTING in text
        assert "No run yet" not in text
        assert "no run" not in text

    drive(opened(fine(Snapshot()), starting=STARTING, silent=silent), scenario)


def test_the_dashboard_stays_open_after_the_end_until_q() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, Dashboard)
        app.run_ended()
        await press(pilot, "2")
        assert notices(pilot) == [("The run has ended.", "q closes the dashboard.")]
        await press(pilot, "q")
        assert not app._exit
        await press(pilot, "q")
        assert app._exit

    drive(opened(closing=ENDS_DEMO), scenario)


def test_after_a_scored_round_its_answers_are_not_lost() -> None:
    scored = snapshot(run=run_view(round=12), rounds=round_views(12))

    async def scenario(pilot: Pilot[None]) -> None:
        for state, lost in (
            ("idle", "nothing: no round is open"), ("train", "what devices compute")
        ):  # fmt: skip
            views = (device_view(1, state=state),)
            await tell(pilot, fine(scored.model_copy(update={"devices": views})))
            await press(pilot, "A")
            text = screen_text(pilot)
            assert "Round 12 is scored" in text
            assert "Kept:   model of round 12" in text
            assert f"Lost:   {lost}" in text
            assert "answers of round" not in text
            await press(pilot, "escape")

    drive(dashboard(fine(scored), control=RecordingControl()), scenario)


def test_the_message_of_a_small_window_is_whole() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        text = " ".join(screen_text(pilot).split())
        assert text == "Please enlarge the window to 80x20 (it is 20x8)."

    drive(dashboard(), scenario, size=(20, 8))


def test_the_header_keeps_the_id_of_the_run() -> None:
    run = "r-20260304-141502"

    async def scenario(pilot: Pilot[None]) -> None:
        assert run in screen_text(pilot).splitlines()[0]

    drive(dashboard(fine(snapshot(run=run_view(run=run)))), scenario, size=(80, 24))
