"""The request that each key sends, and the messages to the user."""

from __future__ import annotations

import threading
from datetime import timezone

import pytest
from textual import events
from textual.command import Command, CommandList
from textual.pilot import Pilot
from textual.widgets import Button, Input

from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.events.base.snapshot import Snapshot
from edgefed.tui.app import Dashboard
from edgefed.tui.feeds.recorded_feed import PERIOD
from edgefed.tui.keys.actions import ACTIONS
from edgefed.tui.screens.overview import OverviewScreen
from edgefed.tui.state.key_orders import READ_ONLY, CoordinatorOrder, order_for
from edgefed.tui.state.run_commands import OWN_COMMANDS
from tests.tui.driving import drive, notices, press, screen_text, until
from tests.tui.samples import (
    REFUSAL,
    FakeClock,
    RecordingControl,
    dashboard,
    feed,
    fine,
    round_views,
    run_view,
    snapshot,
)

RUN = "r-0142"


RUNNING: list[tuple[tuple[str, ...], list[str]]] = [
    (("p",), ["pause"]),
    (("A", *RUN, "enter"), ["abort"]),
    (("A", *RUN, "tab", "tab", "enter"), ["abort"]),
    (("A", *"r-0141", "enter", "tab", "tab", "enter", "escape"), []),
    (("A", "enter", "p"), ["pause"]),
    (("F", "tab", "enter"), ["finish"]),
    (("F", "enter", "F", "escape", "F", "n", "F", "q", "p"), ["pause"]),
]
"""Keys in a running run, and what they order; dialogs are left by what does not confirm them."""

PAUSED = [(("full_stop",), ["step"]), (("F", "y"), ["finish"]), (("p",), ["resume"])]


@pytest.mark.parametrize(
    ("status", "steps"),
    [("running", RUNNING), ("paused", PAUSED), ("pausing", [(("p",), ["resume"])]),
     ("finishing", [(("F", "y"), [])])],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_keys_order_what_they_say(
    status: str, steps: list[tuple[tuple[str, ...], list[str]]]
) -> None:
    control = RecordingControl()

    async def scenario(pilot: Pilot[None]) -> None:
        for keys, wanted in steps:
            control.orders.clear()
            await press(pilot, *keys)
            assert control.orders == [(action, RUN) for action in wanted], keys
            assert isinstance(pilot.app.screen, OverviewScreen)

    drive(dashboard(fine(snapshot(run=run_view(status=status))), control=control), scenario)
    assert threading.get_ident() not in control.threads


def test_the_footer_and_the_palette_call_p_resume_in_a_pause() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "p Resume" in screen_text(pilot).splitlines()[-1]
        listed = await palette(pilot)
        assert "Resume" in listed
        assert "Pause" not in listed

    app = dashboard(fine(snapshot(run=run_view(status="paused"))), control=RecordingControl())
    drive(app, scenario)


def test_the_question_says_what_finishing_means_and_then_that_it_was_taken() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "F")
        text = screen_text(pilot)
        assert "Finish run r-0142?" in text
        assert "completes its round" in text
        assert "y yes, esc leaves" in text
        await press(pilot, "y")
        assert notices(pilot) == [("", "r-0142 ends after its round and keeps the model.")]

    drive(dashboard(control=RecordingControl()), scenario)


@pytest.mark.parametrize(
    ("status", "told"),
    [("finishing", "r-0142 is finishing already."), ("waiting", CoordinatorOrder("finish", RUN))],
)
def test_a_waiting_run_can_finish_and_one_that_finishes_is_not_asked_twice(
    status: str, told: str | CoordinatorOrder
) -> None:
    assert order_for("finish", snapshot(run=run_view(status=status))) == told


def test_the_question_follows_the_run_while_it_is_open() -> None:
    clock = FakeClock()
    later = snapshot(run=run_view(round=13), rounds=round_views(12))
    updates = feed(clock, fine(snapshot()), fine(later))
    app = Dashboard(updates, RecordingControl(), clock, zone=timezone.utc)

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "A")
        assert "model of round 11" in screen_text(pilot)
        clock.seconds = 2 * PERIOD
        updates.deliver()
        await until(pilot, lambda: "model of round 12" in screen_text(pilot))
        assert "Round 13 is under way" in screen_text(pilot)

    drive(app, scenario)


def test_the_button_waits_for_the_name_and_escape_leaves() -> None:
    control = RecordingControl()

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "A")
        screen = pilot.app.screen
        sure = screen.query_one("#sure", Button)
        assert sure.disabled
        await press(pilot, *RUN[:-1])
        assert sure.disabled
        await press(pilot, RUN[-1])
        assert screen.query_one(Input).value == RUN
        assert not screen.query_one("#sure", Button).disabled
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, OverviewScreen)

    drive(dashboard(control=control), scenario)
    assert control.orders == []


def test_a_name_that_arrives_at_once_is_taken_whole() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "A")
        for character in RUN:
            pilot.app.post_message(events.Key(character, character))
        await until(pilot, lambda: pilot.app.screen.query_one(Input).value == RUN)

    drive(dashboard(control=RecordingControl()), scenario)


def test_a_refused_order_is_told_with_its_hint() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "p")
        assert notices(pilot) == [(REFUSAL.message, REFUSAL.hint)]
        assert isinstance(pilot.app.screen, OverviewScreen)

    drive(dashboard(control=RecordingControl(REFUSAL)), scenario)


def test_a_broken_control_is_told_too() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "p")
        assert notices(pilot) == [("Could not pause r-0142.", "OSError: no route")]

    drive(dashboard(control=RecordingControl(OSError("no route"))), scenario)


def test_read_only_says_so() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "p", "full_stop", "F", "A")
        assert [text for _, text in notices(pilot)] == [READ_ONLY] * 4
        assert isinstance(pilot.app.screen, OverviewScreen)

    drive(dashboard(), scenario)


def test_without_a_run_the_keys_say_how_to_start_one() -> None:
    control = RecordingControl()

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "p", "full_stop", "F", "A")
        assert [text for _, text in notices(pilot)] == [OWN_COMMANDS.no_run] * 4

    drive(dashboard(fine(Snapshot()), control=control), scenario)
    assert control.orders == []


def test_help_closes() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        for key in ("escape", "q", "question_mark"):
            await press(pilot, "question_mark")
            assert "pause after the open exchange" in screen_text(pilot)
            await press(pilot, key)
            assert isinstance(pilot.app.screen, OverviewScreen)

    drive(dashboard(), scenario)


def test_q_goes_back_and_closes_the_dashboard_on_the_first_screen() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "2", "q")
        assert isinstance(pilot.app.screen, OverviewScreen)
        assert not pilot.app._exit
        await press(pilot, "q")
        assert pilot.app._exit

    drive(dashboard(), scenario)


@pytest.mark.parametrize("keys", [["F"], ["2", "slash"]], ids=" ".join)
def test_ctrl_q_closes_the_dashboard_from_dialogs_and_where_texts_are_typed(
    keys: list[str],
) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, *keys)
        assert not pilot.app._exit
        await press(pilot, "ctrl+q")
        assert pilot.app._exit

    drive(dashboard(control=RecordingControl()), scenario)


def test_a_click_on_the_footer_does_what_the_key_does() -> None:
    control = RecordingControl()

    async def scenario(pilot: Pilot[None]) -> None:
        line = screen_text(pilot).splitlines()[-1]
        await pilot.click("#keys", offset=(line.index("Pause"), 0))
        await press(pilot)

    drive(dashboard(control=control), scenario)
    assert control.orders == [("pause", RUN)]


@pytest.mark.parametrize("status", ["finished", "aborted", "failed"])
@pytest.mark.parametrize("key", ["pause", "step", "finish", "abort"])
def test_an_ended_run_takes_no_orders(key: str, status: str) -> None:
    told = order_for(key, snapshot(run=run_view(status=status)))  # type: ignore[arg-type]
    assert isinstance(told, str)
    assert status in told


def test_step_wants_a_paused_run() -> None:
    assert order_for("step", snapshot(run=run_view(status="paused"))) == CoordinatorOrder(
        "step", RUN
    )
    assert isinstance(order_for("step", snapshot(run=run_view(status="running"))), str)


def test_an_ended_run_offers_no_orders() -> None:
    words = ["Pause", "Resume", "Step", "Finish", "Abort"]

    async def scenario(pilot: Pilot[None]) -> None:
        footer = screen_text(pilot).splitlines()[-1]
        assert not [word for word in words if word in footer]
        assert "ctrl+q Quit" in footer
        assert not {*words, "Finish…", "Abort…"} & await palette(pilot)

    app = dashboard(fine(snapshot(run=run_view(status="failed"))), control=RecordingControl())
    drive(app, scenario)


def test_the_palette_begins_with_a_command_that_does_no_harm() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        listed = await palette(pilot)
        assert {"Pause", "Step", "Finish…", "Abort…", "Theme"} <= listed
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, OverviewScreen)

    drive(dashboard(control=RecordingControl()), scenario)


async def palette(pilot: Pilot[None]) -> set[str]:
    """Open the palette and return its commands, once the harmless first one is highlighted."""
    await press(pilot, "ctrl+p")
    await until(pilot, lambda: pilot.app.screen.query_one(CommandList).option_count > 0)
    commands = pilot.app.screen.query_one(CommandList)
    first = commands.get_option_at_index(commands.highlighted or 0)
    assert isinstance(first, Command)
    assert str(first.hit.text) == "Overview"
    return {str(each.hit.text) for each in commands.options if isinstance(each, Command)}


def test_ctrl_z_suspends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Dashboard, "action_suspend_process", lambda app: asked.append("suspend"))

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "ctrl+z")
        await press(pilot, "2", "ctrl+z")

    drive(dashboard(), scenario)
    assert asked == ["suspend", "suspend"]


def test_a_step_is_called_what_the_engine_does() -> None:
    controls = RunControls(paused=True)
    assert "exchange" in controls.order("step")
    assert "one exchange" in CoordinatorOrder("step", RUN).taken()
    assert "exchange" in next(each.sentence for each in ACTIONS if each.name == "run.step")
