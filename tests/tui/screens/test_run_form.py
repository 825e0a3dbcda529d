"""Starting a run from the screen: what it begins with, the form, its checks, and its end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import timezone
from pathlib import Path
from typing import Any, ClassVar

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input, OptionList

from edgefed.advise.advice import answer
from edgefed.advise.race import RaceScore
from edgefed.advise.twin import Twin
from edgefed.cli.programs.run_launcher import RecipeDraft, RunLauncher
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import NotAllowedError
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.simulator.sweep.plan import SweepCase
from edgefed.tui.app import Dashboard
from edgefed.tui.forms.form_list import FormList
from edgefed.tui.forms.recipe_form import ESSENTIALS
from edgefed.tui.screens.new_run import NewRunScreen, recipe_files
from edgefed.tui.screens.overview import OverviewScreen
from edgefed.tui.screens.question import QuestionScreen
from edgefed.tui.screens.run_form import RunFormScreen
from edgefed.tui.state.key_orders import READ_ONLY
from edgefed.tui.state.run_commands import RunCommands
from tests.cli.programs.test_run_launcher import Coordinator
from tests.tui.driving import PATIENCE, Scenario, drive, notices, press, screen_text, tell, until
from tests.tui.samples import (
    FakeClock,
    RecordingControl,
    dashboard,
    device_view,
    feed,
    fine,
    run_view,
    snapshot,
)

FILE = '[algorithm]\nname = "fedprox"\nmu = 0.5\n[rounds]\ncount = 7\n'
BUSY = NotAllowedError("Run r-0142 is at work.", code="run.busy", hint="edgefed run finish r-0142")


SCROLLBAR = set(" ▁▂▃▄▅▆▇█▔")
"""What Textual draws its scrollbars with."""


class Refusing(Coordinator):
    """Starts nothing."""

    def order(self, action: str, /, **arguments: Any) -> Any:
        raise BUSY


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


LABELS = ["method", "data", "model", "rounds", "cohort", "epochs", "rate", "name"]

OVER = fine(snapshot(run=run_view(status="finished")))


def dashboard_in(
    folder: Path, told: Coordinator, *, letters: bool = False, live: FeedUpdate = OVER
) -> Dashboard:
    """A dashboard that can start runs, in a folder with two recipes."""
    (folder / "a.toml").write_text(FILE)
    (folder / "b.toml").write_text("")
    (folder / "edgefed.toml").write_text("")
    launcher = RunLauncher(told, Surroundings({"HOME": str(folder)}, folder))
    clock = FakeClock()
    return Dashboard(feed(clock, live), None, clock, letters, zone=timezone.utc, launcher=launcher)


@pytest.fixture
def opened(tmp_path: Path, coordinator: Coordinator) -> Dashboard:
    return dashboard_in(tmp_path, coordinator)


@pytest.fixture
def started(tmp_path: Path, coordinator: Coordinator) -> Callable[..., None]:
    """Drive a dashboard that can start runs."""

    def run(
        scenario: Scenario,
        size: tuple[int, int] = (120, 36),
        told: Coordinator = coordinator,
        *,
        letters: bool = False,
        live: FeedUpdate = OVER,
    ) -> None:
        drive(dashboard_in(tmp_path, told, letters=letters, live=live), scenario, size)

    return run


async def open_form(pilot: Pilot[None], *keys: str) -> RunFormScreen:
    await press(pilot, "n", *keys, "enter")
    screen = pilot.app.screen
    assert isinstance(screen, RunFormScreen)
    return screen


def can_start(form: RunFormScreen) -> bool:
    return not form.query_one("#form-start", Button).disabled


async def choose(pilot: Pilot[None], key: str) -> None:
    """Put the cursor on a field, on the page of all fields where it is there only."""
    form = pilot.app.screen
    assert isinstance(form, RunFormScreen)
    if key not in ESSENTIALS and not form._form.whole:
        await press(pilot, "m")
    form.query_one(FormList).go_to(key)
    await press(pilot)
    assert form.query_one(FormList).key == key


def test_n_offers_recipes_and_past_runs_until_escape_or_ctrl_q(
    started: Callable[..., None],
) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "2", "n")
        offered = pilot.app.screen
        assert isinstance(offered, NewRunScreen)
        text = screen_text(pilot)
        for told in ("a.toml", "b.toml", "defaults", "r-1  fedprox  finished  2024"):
            assert told in text
        assert "edgefed.toml" not in text
        assert "> a.toml" in text
        await press(pilot, "down")
        assert "> b.toml" in screen_text(pilot)
        assert screen_text(pilot).count(">") == 1
        await press(pilot, "escape")
        assert pilot.app.screen is not offered
        await press(pilot, "n", "ctrl+q")
        assert pilot.app._exit

    started(scenario)


def test_a_path_is_a_file_or_a_folder(started: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more/c.toml").write_text("seed = 5\n")

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "n", "shift+tab", *str(tmp_path / "more"), "enter")
        assert "c.toml" in screen_text(pilot)
        assert "a.toml" not in screen_text(pilot)
        await press(pilot, "shift+tab", *"/absent.toml", "enter")
        ((title, _),) = notices(pilot)
        assert "absent.toml: the file does not exist." in title
        assert isinstance(pilot.app.screen, NewRunScreen)
        for wrong in ("~nobody-has-this-name/x", "n" * 300):
            pilot.app.screen.query_one("#new-path", Input).value = wrong
            await press(pilot, "enter")
            assert isinstance(pilot.app.screen, NewRunScreen)
            assert wrong[:20] in notices(pilot)[-1][0]
        await press(pilot, "tab", "enter")
        assert "New run from more/c.toml" in screen_text(pilot)

    started(scenario)


def test_a_run_is_started_with_a_changed_value_and_its_command_copied(
    started: Callable[..., None], coordinator: Coordinator, copied: list[str]
) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        form = await open_form(pilot)
        await press(pilot, "slash", *"rounds.count", "enter", "enter", "backspace", "9", "enter")
        assert "edgefed run start a.toml --set rounds.count=9" in screen_text(pilot)
        assert form.query_one(FormList).has_focus
        await press(pilot, "y", "ctrl+j")
        assert copied == ["edgefed run start a.toml --set rounds.count=9"]
        assert isinstance(pilot.app.screen, OverviewScreen)
        assert ("", "Started r-2.") in notices(pilot)

    started(scenario)
    (recipe,) = coordinator.started
    assert (recipe["rounds"]["count"], recipe["algorithm"]["mu"]) == (9, 0.5)


def test_a_past_run_is_started_again_from_the_devices_screen(
    started: Callable[..., None], coordinator: Coordinator
) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "2", "n", "end", "enter", "ctrl+j")
        assert isinstance(pilot.app.screen, OverviewScreen)

    started(scenario)
    assert coordinator.started[0]["name"] == "2024"


class SlowLauncher(RunLauncher):
    """Reads each file only when it is let go."""

    let_go: ClassVar[dict[str, threading.Event]] = {}

    def from_file(self, path: Path | None) -> RecipeDraft:
        assert path is not None
        gate = self.let_go.setdefault(path.name, threading.Event())
        assert gate.wait(PATIENCE)
        return super().from_file(path)


def test_keys_wait_for_the_form_that_is_loading_and_go_nowhere_without_one(
    tmp_path: Path, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.tui.screens.test_run_form.RunLauncher", SlowLauncher)
    app, gates = dashboard_in(tmp_path, coordinator), SlowLauncher.let_go

    async def run() -> None:
        async with app.run_test(size=(120, 36)) as pilot:
            (tmp_path / "b.toml").write_text("[")
            await pilot.press("n", "down", "enter", "up", "enter", "q")
            await until(pilot, lambda: "Loading" in screen_text(pilot))
            gates["b.toml"].set()
            await until(pilot, lambda: bool(notices(pilot)))
            await press(pilot)
            assert not screen_text(pilot).count("Loading")
            await pilot.press("up", "enter", "down", "escape", "n", "enter")
            await pilot.press("slash", *"rounds.count", "enter", "enter", "backspace", "9", "enter")
            await until(pilot, lambda: len(gates) == 2)
            gates["a.toml"].set()
            await until(pilot, lambda: "rounds.count=9" in screen_text(pilot))
            assert coordinator.started == []
            await press(pilot, "ctrl+j")
            assert coordinator.started[0]["rounds"]["count"] == 9

    asyncio.run(run())


def test_a_wrong_value_is_told_beside_the_field_and_nothing_starts(
    started: Callable[..., None], coordinator: Coordinator
) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        form = await open_form(pilot)
        assert can_start(form)
        await choose(pilot, "algorithm.mu")
        await press(pilot, "enter", "1", "e", "9")
        row = next(line for line in screen_text(pilot).splitlines() if "✗ mu " in line)
        assert "must be at most 100" in row
        assert "1 to correct" in screen_text(pilot)
        assert not can_start(form)
        await press(pilot, "ctrl+j")
        assert notices(pilot) == [("", "1 to correct: ctrl+e goes there.")]
        await press(pilot, "escape")
        assert "✓ can be started" in screen_text(pilot)
        assert can_start(form)

    started(scenario, (80, 24))
    assert coordinator.started == []


def test_the_pages_of_the_form_and_the_keys_that_change_values(
    started: Callable[..., None],
) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        form = await open_form(pilot)
        the_first_page_has_the_essentials_with_their_meanings(pilot, form)
        await the_filter_leaves_matching_keys_and_escape_shows_all(pilot, form)
        await more_opens_all_other_values_but_those_of_simulations(pilot, form)
        await space_goes_through_the_choices_and_delete_takes_the_change_back(pilot, form)
        await ctrl_e_goes_from_error_to_error(pilot, form)
        await the_fields_follow_the_algorithm(pilot, form)

    started(scenario, (80, 24))


def the_first_page_has_the_essentials_with_their_meanings(
    pilot: Pilot[None], form: RunFormScreen
) -> None:
    assert ">  method" in screen_text(pilot)
    rows = [line.strip("│ >").split() for line in screen_text(pilot).splitlines()]
    shown = {row[0]: " ".join(row[1:]) for row in rows if row and row[0] in LABELS}
    assert list(shown) == LABELS
    assert shown["method"].startswith("fedprox FedAvg whose devices are pulled back")
    assert shown["data"].startswith("digits scikit-learn's handwritten digits")
    assert shown["model"].startswith("cnn ")
    assert shown["cohort"].startswith("0 Number of answers that a round waits for")
    assert form.query_one(FormList).option_count == len(LABELS) + 1
    assert "more…" in screen_text(pilot)


async def the_filter_leaves_matching_keys_and_escape_shows_all(
    pilot: Pilot[None], form: RunFormScreen
) -> None:
    fields = form.query_one(FormList)
    whole = fields.option_count
    await press(pilot, "slash", *"quorum")
    assert fields.key == "rounds.quorum"
    assert fields.option_count == 2
    await press(pilot, *"zzz")
    assert "No key has this in it" in screen_text(pilot)
    await press(pilot, "escape")
    assert fields.option_count == whole
    assert fields.has_focus


async def more_opens_all_other_values_but_those_of_simulations(
    pilot: Pilot[None], form: RunFormScreen
) -> None:
    fields = form.query_one(FormList)
    few = fields.option_count
    await press(pilot, "end", "enter")
    keys = {field.key for field in form._form.shown()}
    assert fields.option_count > len(keys) > 100
    assert {"rounds.quorum", "data.classes", "algorithm.mu", "name"} <= keys
    assert not keys & {"data.partition", "data.alpha", "data.classes_per_device", "data.pieces"}
    assert not [key for key in keys if key.startswith("simulation.")]
    await press(pilot, "escape")
    assert fields.option_count == few
    await press(pilot, "m")
    assert fields.option_count > 100
    await press(pilot, "m")
    assert fields.option_count == few
    await choose(pilot, "rounds.quorum")
    await press(pilot, "enter", "2", "enter", "m")
    assert "✗ rounds.quorum" in screen_text(pilot), "a wrong value is on the first page, too"
    await choose(pilot, "rounds.quorum")
    await press(pilot, "delete")
    assert form._form.sets == {}


async def space_goes_through_the_choices_and_delete_takes_the_change_back(
    pilot: Pilot[None], form: RunFormScreen
) -> None:
    await choose(pilot, "wire.error_feedback")
    await press(pilot, "space")
    assert form._form.sets == {"wire.error_feedback": "false"}
    await press(pilot, "space")
    assert form._form.sets == {}
    await choose(pilot, "wire.uplink")
    await press(pilot, "space", "delete")
    assert form._form.sets == {}


async def ctrl_e_goes_from_error_to_error(pilot: Pilot[None], form: RunFormScreen) -> None:
    for key, text in {"seed": "-1", "rounds.quorum": "2"}.items():
        form._form.change(key, text)
    await choose(pilot, "model.name")
    seen = []
    for _ in range(3):
        await press(pilot, "ctrl+e")
        seen.append(form.query_one(FormList).key)
    assert seen == ["rounds.quorum", "seed", "rounds.quorum"]


async def the_fields_follow_the_algorithm(pilot: Pilot[None], form: RunFormScreen) -> None:
    assert form._form.field("algorithm.mu") is not None
    await choose(pilot, "algorithm.name")
    await press(pilot, "enter", *"fedma", "enter")
    told = form._form.problem("algorithm.mu")
    assert told.startswith("unknown key"), "the file has it, which is said"
    assert form._form.field("algorithm.sweeps") is not None


def test_changes_are_not_lost_unasked(
    started: Callable[..., None], coordinator: Coordinator
) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await open_form(pilot)
        await choose(pilot, "wire.error_feedback")
        await press(pilot, "space", "escape", "escape")
        assert isinstance(pilot.app.screen, QuestionScreen)
        assert "1 change would be lost" in screen_text(pilot)
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, RunFormScreen)
        await press(pilot, "escape", "n")
        assert isinstance(pilot.app.screen, RunFormScreen)
        await press(pilot, "escape", "tab", "enter")
        assert isinstance(pilot.app.screen, OverviewScreen)
        await open_form(pilot)
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, OverviewScreen), "without a change nothing is asked"

    started(scenario)
    assert coordinator.started == []


def test_a_value_is_changed_in_its_line_where_it_is_selected(started: Callable[..., None]) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        form = await open_form(pilot)
        value = form.query_one("#form-value", Input)
        for key, name in {"rounds.count": "rounds", "wire.downlink": "downlink"}.items():
            await choose(pilot, key)
            before = form._form.field(key)
            assert before is not None
            await press(pilot, "enter")
            assert (value.value, value.selected_text) == (before.text, before.text)
            lines = screen_text(pilot).splitlines()
            line = next(i for i, line in enumerate(lines) if line.strip("│ >*").startswith(name))
            assert value.region.y == line
            assert lines[line].index(before.text, 10) == value.region.x
            await press(pilot, "5")
            assert form._form.sets == {key: "5"}
            await press(pilot, "escape")
            assert form._form.sets == {}
            assert not value.display

    started(scenario, (80, 24))


def test_the_methods_are_picked_from_a_list_with_their_meanings(
    started: Callable[..., None],
) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        form = await open_form(pilot)
        choices = form.query_one("#form-choices", OptionList)
        assert not choices.display
        await press(pilot, "enter")
        assert "fedopt" in screen_text(pilot)
        assert "FedAvg with Adam, Yogi, Adagrad or momentum" in screen_text(pilot)
        await press(pilot, "down", "enter")
        assert form._form.sets == {"algorithm.name": "fedrs"}
        assert not choices.display
        await press(pilot, "enter", *"fedo", "enter")
        assert form._form.sets == {"algorithm.name": "fedopt"}
        await press(pilot, "enter", "up", "up", "escape")
        assert form._form.sets == {"algorithm.name": "fedopt"}

    started(scenario)


def test_the_classes_of_the_devices_are_offered(started: Callable[..., None]) -> None:
    devices = tuple(
        device_view(number, class_names=names)
        for number, names in enumerate([("ants", "bees"), ("bees", "cats")], 1)
    )
    live = snapshot(run=run_view(status="finished")).model_copy(update={"devices": devices})

    async def scenario(pilot: Pilot[None]) -> None:
        form = await open_form(pilot)
        await choose(pilot, "data.classes")
        await press(pilot, "enter")
        assert "the classes that the devices announce" in screen_text(pilot)
        await press(pilot, "down", "enter")
        assert form._form.sets == {"data.classes": '["ants", "bees", "cats"]'}

    started(scenario, live=fine(live))


FEW = snapshot(run=run_view(status="finished")).model_copy(update={"devices": (device_view(1),)})


HINDRANCES: list[tuple[FeedUpdate, dict[str, str], str]] = [
    (fine(FEW), {}, "✓ can be started"),
    (fine(FEW), {"rounds.min_devices": "2"}, "1 of 2 devices there: start more agents"),
    (fine(FEW), {"merging.rule": "krum", "merging.malicious": "1", "algorithm.name": "fedavg"},
     '1 of 5 devices there: merging.rule = "krum"'),
    (fine(FEW), {"algorithm.name": "globalmix", "algorithm.mu": "0.5"}, "to correct"),
    (fine(snapshot()), {}, "r-0142 is running: finish or abort it first"),
    (FeedUpdate(FEW, broker=True, coordinator=False), {}, "Start it: edgefed coordinator"),
    (FeedUpdate(FEW, broker=False, coordinator=False), {}, "Find out why: edgefed doctor"),
]  # fmt: skip
"""What the feed tells, changes of the recipe, and what the form says of both."""


def test_the_form_is_green_only_if_the_run_can_start_now(started: Callable[..., None]) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        form = await open_form(pilot)
        for live, changes, words in HINDRANCES:
            for key in [*form._form.sets]:
                form._form.reset(key)
            for key, text in changes.items():
                form._form.change(key, text)
            await tell(pilot, live)
            form.draw()
            await press(pilot)
            text = screen_text(pilot)
            assert words in text
            assert ("✓ can be started" in text) == (words == "✓ can be started")

    started(scenario, live=fine(FEW))


def test_q_goes_back_as_escape_does(started: Callable[..., None]) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        form = await open_form(pilot)
        for *before, last in (["m", "q"], ["slash", "x", "enter", "q"], ["q"]):
            assert pilot.app.screen is form
            await press(pilot, *before, last)
        assert isinstance(pilot.app.screen, OverviewScreen)
        await press(pilot, "n", "q")
        assert isinstance(pilot.app.screen, OverviewScreen)
        assert not pilot.app._exit

    started(scenario)


def test_a_demo_says_what_starts_another_run() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "n")
        ((_, text),) = notices(pilot)
        assert text.startswith("A demo trains one run")
        for command in ("demo --algorithm fedprox", "up", "sim run"):
            assert f": edgefed {command}" in text

    commands = RunCommands(of_demo=True)
    drive(dashboard(control=RecordingControl(), commands=commands), scenario)


def test_a_refusal_of_the_coordinator_leaves_the_form_open_until_ctrl_q(
    started: Callable[..., None],
) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        form = await open_form(pilot)
        await press(pilot, "ctrl+j")
        assert (BUSY.message, BUSY.hint) in notices(pilot)
        assert pilot.app.screen is form
        assert can_start(form)
        await press(pilot, "slash", "ctrl+q")
        assert pilot.app._exit

    started(scenario, told=Refusing())


def test_a_shows_the_advice_and_enter_takes_the_recommended_recipe(tmp_path: Path) -> None:
    advised = tmp_path / "state" / "advice" / "yard"
    given = RaceScore(
        SweepCase("fedopt server_learning_rate=0.03", {}, Recipe()), 0, 3, {1: 0.75}, {}
    )
    other = RaceScore(SweepCase("fedavg", {}, Recipe()), 0, 3, {1: 0.25}, {})
    advised.mkdir(parents=True)
    made = answer([given, other], {}, Recipe(), (1,), 4, Twin({}, (), timed=False))
    (advised / "advice.json").write_text(json.dumps(made.to_json()))
    (advised / "recommended.toml").write_text('[algorithm]\nname = "fedopt"\n')
    (tmp_path / "a.toml").write_text('name = "yard"\n')
    (tmp_path / "b.toml").write_text('name = "elsewhere"\n')
    around = Surroundings({"HOME": str(tmp_path)}, tmp_path)
    launcher = RunLauncher(Coordinator(), around, state=tmp_path / "state")
    app = Dashboard(feed(FakeClock(), OVER), None, FakeClock(), launcher=launcher)

    async def scenario(pilot: Pilot[None]) -> None:
        await open_form(pilot)
        await press(pilot, "a")
        text = screen_text(pilot)
        assert "Advice for this recipe" in text
        assert ">  fedopt server_learning_rate=0.03  0.750" in text
        assert "   fedavg                            0.250" in text
        assert "Recommended for 40 rounds: fedopt server_learning_rate=0.03" in text
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, RunFormScreen)
        await press(pilot, "a", "enter")
        form = pilot.app.screen
        assert isinstance(form, RunFormScreen)
        assert form._form.draft.title.endswith("recommended.toml")
        await press(pilot, "escape")
        await open_form(pilot, "down")
        await press(pilot, "a")
        (notice,) = notices(pilot)
        assert notice[1].startswith("There is no advice in") or notice[0].startswith("There is no")

    drive(app, scenario)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    texts: list[str] = []
    copy = "textual.app.App.copy_to_clipboard"
    monkeypatch.setattr(copy, lambda app, text: texts.append(text))
    return texts


def test_the_palette_copies_the_run_as_a_command_line(tmp_path: Path, copied: list[str]) -> None:
    launcher = RunLauncher(Coordinator(), Surroundings({"HOME": str(tmp_path)}, tmp_path))
    clock = FakeClock()
    source = feed(clock, fine(snapshot(run=run_view(run="r-1"))))
    app = Dashboard(source, None, clock, launcher=launcher)

    async def scenario(pilot: Pilot[None]) -> None:
        titles = {each.title: each for each in app.get_system_commands(app.screen)}
        titles["Copy command"].callback()
        await press(pilot)

    drive(app, scenario)
    assert len(copied) == 1
    assert copied[0].startswith("edgefed run start --set ")
    assert "algorithm.name=fedprox" in copied[0]


def test_a_read_only_dashboard_starts_nothing() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "n")
        assert [text for _, text in notices(pilot)] == [READ_ONLY]
        assert "Copy command" not in {
            each.title for each in pilot.app.get_system_commands(pilot.app.screen)
        }

    drive(dashboard(), scenario)


def test_the_footer_offers_a_new_run_where_no_run_takes_orders(tmp_path: Path) -> None:
    starts = RunLauncher(Coordinator(), Surroundings({"HOME": str(tmp_path)}, tmp_path))

    def shown(update: FeedUpdate, launcher: RunLauncher | None = starts) -> Dashboard:
        clock = FakeClock()
        return Dashboard(feed(clock, update), None, clock, launcher=launcher)

    async def ended(pilot: Pilot[None]) -> None:
        assert "n New run…" in screen_text(pilot).splitlines()[-1]
        assert "No run yet. Start one: n, or edgefed run start" in screen_text(pilot)

    async def running(pilot: Pilot[None]) -> None:
        assert "New run" not in screen_text(pilot).splitlines()[-1]

    drive(shown(fine(Snapshot())), ended)
    drive(shown(fine(snapshot())), running)
    drive(shown(fine(Snapshot()), None), running)


def test_letters_do_for_a_terminal_without_symbols(started: Callable[..., None]) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await open_form(pilot)
        await choose(pilot, "seed")
        await press(pilot, "enter", "x")
        assert not {each for each in screen_text(pilot) if not each.isascii()} - SCROLLBAR

    started(scenario, letters=True)


def test_files_that_are_no_recipes_are_not_offered(tmp_path: Path) -> None:
    for name in ("b.toml", "a.toml", "pyproject.toml", "edgefed.toml", "edgefed-agent.toml", "x"):
        (tmp_path / name).touch()
    assert [path.name for path in recipe_files(tmp_path)] == ["a.toml", "b.toml"]
    assert recipe_files(tmp_path / "absent") == []


def test_ids_of_the_coordinator_cannot_draw(tmp_path: Path) -> None:
    class Odd(Coordinator):
        def ask(self, action: str, /, **arguments: Any) -> Any:
            row = dict.fromkeys(("run", "name", "algorithm", "status", "created"), "\x1b[31m[b]x")
            return [row]

    launcher = RunLauncher(Odd(), Surroundings({"HOME": str(tmp_path)}, tmp_path))
    clock = FakeClock()
    app = Dashboard(feed(clock, fine(snapshot())), None, clock, launcher=launcher)

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "n")
        assert "\x1b" not in screen_text(pilot)
        assert pilot.app.screen.query_one(OptionList).option_count > 2

    drive(app, scenario)
