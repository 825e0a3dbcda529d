"""Symbols, letters, curves, keys: what the screens are made of."""

from __future__ import annotations

import subprocess
import sys
from itertools import filterfalse
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text
from textual.dom import DOMNode
from textual.pilot import Pilot

from edgefed.cli.programs.run_launcher import RunLauncher
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.events.base.snapshot import LineView, Snapshot
from edgefed.tui.app import Dashboard
from edgefed.tui.keys.actions import ACTIONS, PLACES, actions_of
from edgefed.tui.keys.keymap import OWN_KEYS
from edgefed.tui.look.braille import cell_of, plot
from edgefed.tui.look.symbols import DEVICE_LOOKS, RUN_LOOKS, STATES, SYMBOLS, Glyphs
from edgefed.tui.look.text_format import bar, binned, cut, cut_middle, sparks
from edgefed.tui.panes.base.curve import CURVE_MARKS, labels, rounds_below
from edgefed.tui.screens.help import keys_text, notes_text
from edgefed.tui.screens.registry import ScreenName
from edgefed.tui.screens.run_form import RunFormScreen
from edgefed.tui.screens.runs import RunComparisonScreen
from edgefed.tui.state.closing import WATCHES
from edgefed.tui.tables.device_table import DeviceTable
from tests.cli.programs.test_run_launcher import Coordinator
from tests.tui.driving import drive, press, screen_text, until
from tests.tui.recorded_fleet import recorded
from tests.tui.samples import (
    RecordingControl,
    ago,
    dashboard,
    device_view,
    fine,
    lines,
    mixing,
)


def test_importing_the_app_loads_no_torch_and_no_paho() -> None:
    code = (
        "import sys, edgefed.tui.app, edgefed.tui.screenshot\n"
        "heavy = {'torch', 'torchvision', 'paho', 'numpy'}\n"
        "own = {'edgefed.algorithms', 'edgefed.learn', 'edgefed.control', 'edgefed.transport'}\n"
        "tops = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted((heavy & tops) | (own & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_state_has_a_look_of_its_own() -> None:
    assert set(DEVICE_LOOKS) == set(STATES)
    assert all(look.symbol and look.meaning for look in DEVICE_LOOKS.values())
    words = [(look.symbol, state) for state, look in DEVICE_LOOKS.items()]
    assert len(set(words)) == len(words)
    assert all(len(look.symbol) == 1 for look in RUN_LOOKS.values())


def is_drawing(char: str) -> bool:
    """Return whether it is a part of a border, a bar, a curve or a cut word."""
    return char in "…" or 0x2500 <= ord(char) < 0x25A0 or 0x2800 <= ord(char) < 0x2900


SHOWN = [("", "125"), ("bounties", "4"), ("fedma", "36789")]
"""Recordings, or none, and the keys of the screens that have the most to show of them."""


def with_every_state(name: str) -> Snapshot:
    """Return a recording, or a mixture of experts, whose devices have every state."""
    views = tuple(device_view(i, state=state) for i, state in enumerate(STATES))
    order = LineView(time=ago(1), mark="›", text="by anna: run pause")
    shown = recorded(name).snapshot if name else mixing(states={1: "dead"})
    assert shown is not None
    return shown.model_copy(update={"devices": views, "lines": (order, *lines())})


@pytest.mark.parametrize(("name", "keys"), SHOWN)
def test_letters_leave_no_other_character(name: str, keys: str) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        for key in (*keys, "question_mark"):
            await press(pilot, key)
            assert not {char for char in screen_text(pilot) if ord(char) > 126}

    drive(dashboard(fine(with_every_state(name)), letters=True), scenario)


@pytest.mark.parametrize(("name", "keys"), SHOWN)
def test_the_help_explains_every_symbol_once(name: str, keys: str) -> None:
    page = notes_text(WATCHES).plain.split("\n")
    symbols = [char for line in page for char in line.partition(" ")[0] if not char.isalnum()]

    async def scenario(pilot: Pilot[None]) -> None:
        for screen in keys:
            shown = ""
            for key in (screen, "enter"):
                await press(pilot, key)
                shown += screen_text(pilot)
            unknown = {each for each in shown if not (each.isascii() or each.isalnum())}
            assert not set(filterfalse(is_drawing, unknown - {*symbols}))
            await press(pilot, "escape")

    assert not set(SYMBOLS) & {*CURVE_MARKS, *"".join(CURVE_MARKS)}
    drive(dashboard(fine(with_every_state(name))), scenario)


@given(st.text(alphabet="○◔▽●▲◆✓◌✗◷■▼▶↑↓→›│─┤└·…—°▁█░▒▓⠓ax ", max_size=30))
@settings(max_examples=30, deadline=None)
def test_letters_are_as_wide_as_the_symbols(line: str) -> None:
    shown = Glyphs(ascii=True).line(line)
    assert len(shown) == len(line)
    assert shown.isascii()
    assert Glyphs(ascii=True).text(Text(line, "bold")).plain == shown


def test_no_key_of_the_footer_is_cut() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        line = screen_text(pilot).splitlines()[-1].rstrip()
        shown = [action for action in ACTIONS if f" {action.label} {action.word}" in line]
        assert len(shown) == 6
        words = [*(f"{action.label} {action.word}" for action in shown), "i P x r D Device"]
        assert line == " " + "  ".join(words)

    drive(dashboard(control=RecordingControl()), scenario, size=(80, 24))


@pytest.mark.parametrize(
    ("screen", "size"),
    [("overview", (120, 36)), ("devices", (80, 24))],
)
def test_a_notice_of_a_line_hides_only_the_border_under_the_header(
    screen: ScreenName, size: tuple[int, int]
) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        before = screen_text(pilot).splitlines()
        pilot.app.notify("Pausing r-0142.")
        await until(pilot, lambda: "Pausing r-0142." in screen_text(pilot))
        after = screen_text(pilot).splitlines()
        hidden = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        assert [after.index(now) for _, now in hidden] == [1]
        was, now = hidden[0]
        assert set(was[now.index("▌") :]) == {"─", "╮"}

    drive(dashboard(screen=screen), scenario, size)


def test_help_shows_every_action() -> None:
    page = keys_text(OWN_KEYS).plain
    for action in ACTIONS:
        assert action.label in page
        assert action.word.rstrip("…").lower() in page
    assert all(title in page for title in PLACES.values())


def test_every_action_is_bound_and_can_be_called(tmp_path: Path) -> None:
    launcher = RunLauncher(Coordinator(), Surroundings({"HOME": str(tmp_path)}, tmp_path))

    async def scenario(pilot: Pilot[None]) -> None:
        nodes: list[DOMNode] = [pilot.app]
        for screen in actions_of("screens"):
            await press(pilot, screen.key)
            nodes += [pilot.app.screen, *pilot.app.screen.query(DeviceTable)]
        await press(pilot, "2", "enter")  # the screen of a device
        nodes.append(pilot.app.screen)
        app = pilot.app
        assert isinstance(app, Dashboard)
        nodes.append(RunComparisonScreen(app._board, ["r-0142"]))
        nodes.append(RunFormScreen(app._board, launcher.from_file(None)))
        for action in ACTIONS:
            calls = [
                (node, _bound(node)[action.name]) for node in nodes if action.name in _bound(node)
            ]
            assert action.call in [call for _, call in calls], action.name
            for node, call in calls:
                assert callable(getattr(node, f"action_{call.partition('(')[0]}")), action.name

    drive(dashboard(), scenario)


def _bound(node: DOMNode) -> dict[str | None, str]:
    """Return what each bound action of the registry calls on a node."""
    return {binding.id: binding.action for _, binding in node._bindings}


def test_names_and_keys_of_actions_are_unique() -> None:
    names = [action.name for action in ACTIONS]
    assert len(set(names)) == len(names)
    keys = [(action.key, action.place) for action in ACTIONS]
    assert len(set(keys)) == len(keys)


@given(
    values=st.lists(st.floats(0, 1), min_size=1, max_size=40),
    width=st.integers(1, 30),
    height=st.integers(1, 10),
)
@settings(max_examples=25, deadline=None)
def test_a_curve_has_its_size_and_touches_every_column(
    values: list[float], width: int, height: int
) -> None:
    points = list(enumerate(values))
    lines = plot(points, width=width, height=height, across=(0, len(values) - 1), up=(0.0, 1.0))
    assert [len(line) for line in lines] == [width] * height
    touched = sum(any(line[column] != " " for line in lines) for column in range(width))
    assert touched == (width if len(values) > 1 else 1)


def test_a_rising_line_goes_from_corner_to_corner() -> None:
    assert plot([(0, 0), (1, 1)], width=2, height=1, across=(0, 1), up=(0, 1)) == ["⡠⠊"]


def test_a_line_to_a_point_far_outside_leaves_the_drawing_at_once() -> None:
    size = {"width": 4, "height": 3, "across": (0.0, 2.0), "up": (0.0, 1.0)}
    lines = plot([(0, 0.5), (1, 1e300), (2, 0.5)], **size)  # type: ignore[arg-type]
    near = plot([(0, 0.5), (1, 1e6), (2, 0.5)], **size)  # type: ignore[arg-type]
    assert lines == near
    assert [line[0] != " " for line in lines] == [True, True, False], "up from the middle"
    assert all(line[1:3] == "  " for line in lines)
    drawn = plot([(0, 0.0), (2, 1.0)], glyph="+", **size)  # type: ignore[arg-type]
    assert set("".join(drawn)) == {"+", " "}
    assert cell_of((2, 1.0), **size) == (3, 0)  # type: ignore[arg-type]


def test_axes() -> None:
    assert labels((0.0, 1.0), 6) == ["1.00┤", "    │", "    │", "    │", "    │", "0.00┤"]
    assert labels((0.0, 12345.0), 2) == [" 1e4┤", "0.00┤"]
    assert rounds_below((1, 12), 24).split() == ["1", "5", "9", "12"]
    assert rounds_below((3, 3), 10).strip() == "3"


def test_small_pictures_of_numbers() -> None:
    assert sparks([0, 1, 4, 8]) == "·▁▄█"
    assert sparks([]) == ""
    assert bar(0.99, 10) == ("█" * 9, "░")
    assert bar(7.0, 4) == ("████", "")
    assert binned([1, 2, 3, 4, 5], 2) == [3, 12]
    assert cut("jetson-07", 6) == "jetso…"
    assert cut("jetson", 6) == "jetson"


def test_an_id_is_cut_in_the_middle() -> None:
    assert cut_middle("jetson-orin-nano-07", 12) == "jetso…ano-07"
    assert cut_middle("jetson-orin-nano-07", 3) == "j…7"
    assert cut_middle("jetson", 6) == "jetson"
    for width in range(20):
        assert len(cut_middle("jetson-orin-nano-07", width)) == width
