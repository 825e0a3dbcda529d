"""Keys that a user chose: what they do, where they are shown, and mistakes in them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.pilot import Pilot

from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.load import load_settings
from edgefed.config.values.layers import ValueLayer, document_layer
from edgefed.config.values.toml import read_toml
from edgefed.errors import RecipeError, TimeLimitError
from edgefed.events.base.model import Event
from edgefed.events.history.recording import Recording
from edgefed.process.clock import timestamp
from edgefed.tui.app import Dashboard
from edgefed.tui.feeds.replay_feed import ReplayFeed
from edgefed.tui.keys.actions import ACTIONS
from edgefed.tui.keys.keymap import (
    OWN_KEYS,
    Keymap,
    checked_keymap,
    keys_from,
    label_of,
    read_keymap,
)
from edgefed.tui.screens.devices import DevicesScreen
from edgefed.tui.screens.help import HelpScreen
from edgefed.tui.screens.overview import OverviewScreen
from tests.tui.driving import drive, press, screen_text
from tests.tui.recorded_fleet import recorded
from tests.tui.samples import NOW, FakeClock, RecordingControl, feed, fine, snapshot

CHOSEN = {
    "run.pause": "B",
    "screen.devices": "ctrl+d",
    "view.help": "h,f1",
    "view.back": "backspace",
    "app.quit": "ctrl+x",
    "devices.sort": "s",
}


def keymap(written: Mapping[str, str]) -> Keymap:
    made, problems = read_keymap(written, ValueLayer())
    assert problems == []
    return made


def opened(written: Mapping[str, str], control: RecordingControl | None = None) -> Dashboard:
    clock = FakeClock()
    source = feed(clock, fine(snapshot()))
    return Dashboard(source, control, clock, zone=timezone.utc, keys=keymap(written))


def problems(**written: str) -> list[str]:
    names = {name.replace("_", "."): text for name, text in written.items()}
    return [problem.text for problem in read_keymap(names, ValueLayer())[1]]


def test_a_chosen_key_does_what_the_old_one_did_and_the_old_one_nothing() -> None:
    control = RecordingControl()

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "p", "2")
        assert (control.orders, type(pilot.app.screen)) == ([], OverviewScreen)
        await press(pilot, "B", "ctrl+d")
        assert control.orders == [("pause", "r-0142")]
        assert isinstance(pilot.app.screen, DevicesScreen)
        await press(pilot, "s")
        assert "sort: device" in screen_text(pilot)
        await press(pilot, "q")
        assert isinstance(pilot.app.screen, DevicesScreen)
        await press(pilot, "backspace")
        assert isinstance(pilot.app.screen, OverviewScreen)

    drive(opened(CHOSEN, control), scenario)


def test_footer_hints_and_help_show_the_chosen_keys() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        footer = screen_text(pilot).splitlines()[-1]
        assert " B Pause" in footer
        assert "ctrl+d Devices" in footer
        assert " p Pause" not in footer
        await press(pilot, "ctrl+d")
        assert "s Sort  O Reverse" in screen_text(pilot)
        await press(pilot, "h")
        assert isinstance(pilot.app.screen, HelpScreen)
        page = " ".join(screen_text(pilot).split())
        assert "B pause pause after the open exchange" in page
        assert "h help this page" in page
        await press(pilot, "h", "backspace", "backspace")
        assert pilot.app._exit

    drive(opened(CHOSEN), scenario, size=(120, 80))


def test_what_panes_say_of_keys_follows_the_chosen_ones(tmp_path: Path) -> None:
    control = RecordingControl(TimeLimitError("No answer.", code="device.silent"))

    async def log(pilot: Pilot[None]) -> None:
        await press(pilot, "2", "enter", "u")
        assert "No answer.  u twice asks again." in screen_text(pilot)

    drive(opened({"detail.log": "u"}, control), log)

    async def rows(pilot: Pilot[None]) -> None:
        assert "of 38 rows  s b scroll" in screen_text(pilot)

    chosen = keymap({"table.down": "s", "table.up": "b"})
    many = feed(FakeClock(), recorded("bounties"))
    labels = Dashboard(many, None, FakeClock(), screen="labels", keys=chosen)
    drive(labels, rows, size=(80, 24))

    file = tmp_path / "events.jsonl"
    run = {"run": "r-1", "status": "running", "rounds": 3}
    file.write_text(f"{Event(time=timestamp(NOW), kind='run', fields=run).line()}\n")
    clock = FakeClock()
    replay = ReplayFeed(Recording.read(file), clock, play=False)
    keys = keymap({"replay.play": "K", "replay.previous_round": "b"})
    app = Dashboard(replay, None, clock, zone=timezone.utc, keys=keys, replay=replay)

    async def over(pilot: Pilot[None]) -> None:
        assert "over. K plays it again, b goes a round back" in screen_text(pilot)

    drive(app, over)


def test_two_actions_can_trade_their_keys() -> None:
    control = RecordingControl()

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "full_stop")

    drive(opened({"run.pause": ".", "run.step": "p"}, control), scenario)
    assert control.orders == [("pause", "r-0142")]


def test_an_unknown_action_names_the_nearest() -> None:
    assert problems(run_paus="b") == ['there is no such action; did you mean "run.pause"?']
    assert problems(pause="b") == ['there is no such action; did you mean "run.pause"?']
    assert problems(nonsense="b") == ["there is no such action"]


def test_an_unknown_key_is_named() -> None:
    assert problems(run_pause="ctrl+pgup") == ['there is no key "ctrl+pgup"']
    assert problems(run_pause="escpe") == ['there is no key "escpe"; did you mean "escape"?']
    assert problems(run_pause="") == ['there is no key ""']


def test_two_actions_of_one_place_on_one_key_are_told_once() -> None:
    assert problems(devices_wide="o") == ['"o" is the key of devices.sort (Sort) too']
    assert problems(devices_wide="!", devices_sort="!") == [
        '"!" is the key of devices.sort (Sort) too'
    ]
    assert problems(run_pause="w") == ['"w" is the key of devices.wide (Wide) too']
    assert problems(devices_wide="j") == ['"j" is the key of table.down (Down) too']
    assert problems(overview_curve="o") == [], "the devices' key, on another screen"
    assert problems(devices_wide="ctrl+p") == ['"ctrl+p" opens the palette of commands']


def loaded(folder: Path, text: str) -> Keymap:
    (folder / "edgefed.toml").write_text(text)
    return checked_keymap(load_settings(Surroundings({"HOME": str(folder)}, folder)))


def test_settings_choose_keys(tmp_path: Path) -> None:
    made = loaded(tmp_path, '[dashboard.keys]\n"run.pause" = "shift+b"\n"run.step" = "s"\n')
    assert made.bindings() == {"run.pause": "B", "run.step": "s"}
    assert made.hint("run.pause", "run.abort") == "B Pause  A Abort…"


def test_each_mistake_is_one_line_with_its_place_and_exit_code_2(tmp_path: Path) -> None:
    text = '[dashboard.keys]\n"run.stop" = "x"\n"run.step" = "foo"\n"run.abort" = "2"\n'
    with pytest.raises(RecipeError) as caught:
        loaded(tmp_path, text)
    assert caught.value.exit_code == 2
    assert caught.value.message.splitlines() == [
        "./edgefed.toml:2: dashboard.keys.run.stop: there is no such action; "
        'did you mean "run.step"?',
        './edgefed.toml:3: dashboard.keys.run.step: there is no key "foo"',
        './edgefed.toml:4: dashboard.keys.run.abort: "2" is the key of screen.devices (Devices) '
        "too",
    ]


def test_a_name_without_quotes_is_told_how_to_be_written(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r'write the action in quotes: "run\.pause"'):
        loaded(tmp_path, '[dashboard.keys]\nrun.pause = "b"\n')


def test_the_layer_of_a_file_gives_the_line(tmp_path: Path) -> None:
    file = tmp_path / "edgefed.toml"
    file.write_text('\n[dashboard.keys]\n"no.such" = "b"\n')
    layer = document_layer(read_toml(file, "edgefed.toml"))
    (problem,) = read_keymap({"no.such": "b"}, layer)[1]
    assert (problem.origin.line, problem.code) == (3, "recipe.unknown_key")


@pytest.mark.parametrize(
    ("text", "names", "label"),
    [
        ("P", ("P",), "P"),
        ("shift+p", ("P",), "P"),
        ("¡", ("inverted_exclamation_mark",), "¡"),
        ("ctrl+¡", ("ctrl+inverted_exclamation_mark",), "ctrl+¡"),
        ("Ctrl+X", ("ctrl+x",), "ctrl+x"),
        ("?, F1", ("question_mark", "f1"), "?"),
        ("question_mark", ("question_mark",), "?"),
        (",", ("comma",), ","),
        ("+", ("plus",), "+"),
        ("ctrl++", ("ctrl+plus",), "ctrl++"),
        ("esc", ("escape",), "esc"),
        ("ctrl+i", ("tab",), "tab"),
        ("shift+TAB", ("shift+tab",), "shift+tab"),
        ("é", ("é",), "é"),
    ],
)
def test_keys_as_users_write_them(text: str, names: tuple[str, ...], label: str) -> None:
    keys = keys_from(text)
    assert (keys.names, keys.label) == (names, label)


@given(text=st.text(max_size=12))
def test_any_text_is_a_key_or_an_error_and_a_label_is_the_key_again(text: str) -> None:
    try:
        keys = keys_from(text)
    except ValueError as error:
        assert str(error).startswith("there is no key ")
    else:
        assert keys_from(keys.label).names == keys.names[:1]


def test_the_registry_writes_its_keys_as_they_are_called() -> None:
    for action in ACTIONS:
        assert label_of(action.key.split(",")[0]) == action.label, action.name
    everything = {action.name: action.label for action in ACTIONS}
    assert read_keymap(everything, ValueLayer())[1] == []
    assert OWN_KEYS.bindings() == {}
