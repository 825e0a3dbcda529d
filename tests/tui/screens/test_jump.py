"""The line after ``:``, and copying with ``y``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot
from textual.widgets import Input

from edgefed.events.base.snapshot import Snapshot
from edgefed.tui.screens.device import DeviceScreen
from edgefed.tui.screens.devices import DevicesScreen
from edgefed.tui.screens.help import HelpScreen
from edgefed.tui.screens.jump import JumpScreen
from edgefed.tui.screens.overview import OverviewScreen
from edgefed.tui.screens.registry import SCREENS
from edgefed.tui.state.jumping import completions, jump_to, jumps
from tests.tui.driving import drive, notices, press, screen_text
from tests.tui.samples import dashboard, fine


def test_the_beginning_of_a_name_goes_there() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "colon", *"dev", "enter")
        assert isinstance(pilot.app.screen, DevicesScreen)
        await press(pilot, "colon", *"OVER", "enter")
        assert isinstance(pilot.app.screen, OverviewScreen)
        await press(pilot, "colon", *"help", "enter")
        assert isinstance(pilot.app.screen, HelpScreen)
        await press(pilot, "escape", "2", "enter")
        assert isinstance(pilot.app.screen, DeviceScreen)
        await press(pilot, "colon", *"dev", "enter")
        assert isinstance(pilot.app.screen, DevicesScreen)
        await press(pilot, "colon", "q", "enter")
        assert pilot.app._exit

    drive(dashboard(), scenario)


def test_an_unknown_name_says_which_exist_and_the_line_stays() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "colon", *"zzz", "enter")
        assert isinstance(pilot.app.screen, JumpScreen)
        last = screen_text(pilot).splitlines()[-2]
        assert "screens: overview devices classes labels experts matching runs" in last
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, OverviewScreen)

    drive(dashboard(), scenario, size=(80, 24))


def test_tab_completes_and_nothing_typed_goes_nowhere() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "colon", "d", "tab")
        assert pilot.app.screen.query_one(Input).value == "devices"
        await press(pilot, "enter", "colon")
        assert "overview  devices  classes  labels  experts  matching  runs" in screen_text(pilot)
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, DevicesScreen)

    drive(dashboard(), scenario, size=(80, 24))


def test_every_screen_can_be_jumped_to() -> None:
    assert set(SCREENS) < set(jumps())
    for name in SCREENS:
        assert jump_to(name) == (f"show('{name}')", "")


def test_names_that_are_near_or_ambiguous_are_told() -> None:
    assert jump_to("devcies")[1] == 'no such screen; did you mean "devices"?'
    assert jump_to("q") == ("quit", "")
    several = [name for name in jumps() if name.startswith("")]
    assert completions("") == tuple(several)


@given(text=st.text(max_size=10))
def test_any_text_leads_somewhere_or_says_why_not(text: str) -> None:
    call, why = jump_to(text)
    assert (call is None) == bool(why)
    assert call is None or call in jumps().values()


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    texts: list[str] = []
    copy = "textual.app.App.copy_to_clipboard"
    monkeypatch.setattr(copy, lambda app, text: texts.append(text))
    return texts


def test_y_copies_the_run_or_the_device(copied: list[str]) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "y", "2", "down", "y", "enter", "y", "c")
        assert [text for _, text in notices(pilot)] == [f"Copied {text}" for text in copied]

    drive(dashboard(), scenario)
    run, row, opened = copied
    assert run == "r-0142"
    assert row == opened
    assert row.startswith("jetson-")


def test_without_run_and_device_there_is_nothing_to_copy(copied: list[str]) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "y", "2", "y")
        assert [text for _, text in notices(pilot)] == ["Nothing to copy."] * 2

    drive(dashboard(fine(Snapshot())), scenario)
    assert copied == []
