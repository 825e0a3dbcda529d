"""Every key that the screen names is the one that its action has, also after the user chose it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import timezone
from pathlib import Path

from textual.pilot import Pilot

import edgefed.tui
from edgefed.cli.programs.run_launcher import RunLauncher
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.values.layers import ValueLayer
from edgefed.tui.app import Dashboard
from edgefed.tui.keys.actions import ACTIONS
from edgefed.tui.keys.keymap import Keymap, read_keymap
from edgefed.tui.screens.device_keys import DeviceQuestion
from edgefed.tui.screens.run_form import RunFormScreen
from edgefed.tui.screens.runs import RunComparisonScreen
from tests.cli.programs.test_run_launcher import Coordinator
from tests.tui.driving import drive, notices, press, screen_text
from tests.tui.sample_runs import THREE, KnownRuns
from tests.tui.samples import (
    FakeClock,
    RecordingControl,
    device_view,
    feed,
    fine,
    run_view,
    snapshot,
)

_LETTERS = "αβγδεζηθικλμνξοπρστυφχψωбвгджзийлнптфцчшщъыьэюяБГДЖЗИЙЛПФЦЧШЩЪЫЬЭЮЯΓΔΘΛΞΠΣΦΨΩאבגדה"
CHOSEN = {action.name: key for action, key in zip(ACTIONS, _LETTERS, strict=False)}
"""A key for each action that none has by itself."""

_NAMES_A_KEY = re.compile(
    r"\bctrl\+(?![pc]\b)\w"
    r"|\([a-zA-Z]\)"
    r"|^[b-zB-HJ-Z] $"
    r"|(?:^|[\s(])[b-zB-HJ-Z?/] (?:[A-Z][a-z]+|[a-z]+s|scroll)\b"
)
"""A key of an action within a text; ``ctrl+p`` and ``ctrl+c`` have no other one."""

_WRITTEN_AS_THEY_ARE = ("actions.py", "keymap.py", "key_names.py")


def chosen() -> Keymap:
    keymap, problems = read_keymap(CHOSEN, ValueLayer())
    assert problems == []
    assert set(keymap.chosen) == {action.name for action in ACTIONS}
    return keymap


def dashboard_in(folder: Path, status: str, control: RecordingControl | None) -> Dashboard:
    """A dashboard of chosen keys with runs, a lost device, and what starts a run."""
    (folder / "a.toml").write_text("")
    launcher = RunLauncher(Coordinator(), Surroundings({"HOME": str(folder)}, folder))
    clock = FakeClock()
    held = device_view(1, state="idle", standing="quarantined")
    fleet = snapshot(run=run_view(status=status)).model_copy(
        update={"devices": (held, *(device_view(i, state="lost") for i in range(2, 50)))}
    )
    return Dashboard(
        feed(clock, fine(fleet)), control, clock, zone=timezone.utc, runs=KnownRuns(*THREE),
        keys=chosen(), launcher=launcher,
    )  # fmt: skip


def old_keys(text: str) -> list[str]:
    """Return what a text says of keys that no action has any more."""
    hints = (f"{action.label} {action.word.rstrip('…')}" for action in ACTIONS)
    return [hint for hint in hints if re.search(rf"(?<!\S){re.escape(hint)}(?!\S)", text)]


def test_no_screen_names_a_key_that_its_action_no_longer_has(tmp_path: Path) -> None:
    seen: list[str] = []

    async def scenario(pilot: Pilot[None]) -> None:
        async def go(*names: str) -> None:
            await press(pilot, *(CHOSEN.get(name, name) for name in names))
            seen.append(screen_text(pilot))
            assert old_keys(seen[-1]) == [], names

        for action in ACTIONS:
            if action.place == "screens":
                await go(action.name)
        await go("screen.devices", "devices.map")
        await go("escape", "devices.open", "detail.log")
        await go("screen.runs", "runs.mark", "table.down", "runs.open")
        assert isinstance(pilot.app.screen, RunComparisonScreen)
        await go("screen.overview", "view.help")
        await go("escape", "run.new")
        await go("enter")
        assert isinstance(pilot.app.screen, RunFormScreen)
        form = seen[-1]
        for name in ("form.filter", "form.start", "form.next_error", "form.copy"):
            word = next(action.word for action in ACTIONS if action.name == name)
            assert f"{CHOSEN[name]} {word}" in form

    drive(dashboard_in(tmp_path, "finished", None), scenario, (200, 50))


def test_help_names_the_chosen_key_of_every_action(tmp_path: Path) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, CHOSEN["view.help"])
        text = screen_text(pilot)
        shown = [action for action in ACTIONS if action.place != "replay"]
        assert [action.name for action in shown if f" {CHOSEN[action.name]} " not in text] == []

    drive(dashboard_in(tmp_path, "running", None), scenario, (120, 140))


def test_what_an_order_needs_first_names_the_chosen_key(tmp_path: Path) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, CHOSEN["run.step"])
        pause, release = CHOSEN["run.pause"], CHOSEN["device.release"]
        assert notices(pilot)[-1][1] == f"r-0142 is running: pause it first ({pause}), then step."
        await press(pilot, CHOSEN["screen.devices"], CHOSEN["table.last"])
        await press(pilot, CHOSEN["device.quarantine"])
        told = f"jetson-01 is quarantined already: {release} releases it."
        assert notices(pilot)[-1][1] == told

    drive(dashboard_in(tmp_path, "running", RecordingControl()), scenario)


def test_a_paused_run_names_the_chosen_keys_that_go_on(tmp_path: Path) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        pause, step = CHOSEN["run.pause"], CHOSEN["run.step"]
        assert f"paused: {pause} resumes, {step} steps" in screen_text(pilot)

    drive(dashboard_in(tmp_path, "paused", None), scenario)


def test_a_question_about_a_device_is_left_by_the_chosen_key(tmp_path: Path) -> None:
    control = RecordingControl()

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, CHOSEN["screen.devices"], CHOSEN["device.quarantine"])
        assert isinstance(pilot.app.screen, DeviceQuestion)
        await press(pilot, "q")
        assert isinstance(pilot.app.screen, DeviceQuestion)
        await press(pilot, CHOSEN["view.back"])
        assert not isinstance(pilot.app.screen, DeviceQuestion)

    drive(dashboard_in(tmp_path, "running", control), scenario)
    assert control.device_orders == []


def test_a_letter_that_starts_the_run_is_still_typed_into_values(tmp_path: Path) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, CHOSEN["run.new"], "enter")
        form = pilot.app.screen
        assert isinstance(form, RunFormScreen)
        await press(pilot, CHOSEN["form.filter"], CHOSEN["form.start"], CHOSEN["form.next_error"])
        assert form.is_current
        typed = CHOSEN["form.start"] + CHOSEN["form.next_error"]
        assert form.query_one("#form-filter").value == typed  # type: ignore[attr-defined]
        await press(pilot, "escape", CHOSEN["form.start"])
        assert not form.is_attached

    drive(dashboard_in(tmp_path, "finished", RecordingControl()), scenario)


def texts(file: Path) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings."""
    tree = ast.parse(file.read_text())
    told = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def test_no_text_of_the_dashboard_has_a_key_of_an_action_in_it() -> None:
    folder = Path(edgefed.tui.__path__[0])
    found = {
        f"{file.name}: {text}"
        for file in folder.rglob("*.py")
        if file.name not in _WRITTEN_AS_THEY_ARE
        for text in texts(file)
        if " " in text and _NAMES_A_KEY.search(text)
    }
    own = {
        "device_keys.py: y yes, esc leaves",
        "question.py: y yes, esc leaves",
        "run_form.py: y leaves, esc stays",
    }
    assert found == own, "keys of dialogs, which are of no action"


def test_the_scan_sees_a_key_in_a_text() -> None:
    for text in (
        "j k Scroll  esc Back",
        "pause it first (p)",
        "r releases it",
        "ctrl+e goes",
        "l ",
    ):
        assert _NAMES_A_KEY.search(text), text
    for action in ACTIONS:
        assert not _NAMES_A_KEY.search(action.sentence), action.name
