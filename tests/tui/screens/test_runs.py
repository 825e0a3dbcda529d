"""The screen of runs lists them, and draws the curves of some on one axis beside their settings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from edgefed.cli.programs.show_dashboard import StateFolderRuns
from edgefed.events.history.known_runs import RunDetails, RunRow
from edgefed.events.history.run_comparison import compare
from edgefed.tui.app import Dashboard
from edgefed.tui.feeds.recorded_feed import PERIOD
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.panes.runs.run_curves import curves_of, drawing, legend
from edgefed.tui.screens.run_model import NO_MODEL
from edgefed.tui.screens.runs import MOST, NO_LOCAL_RUN, UNKNOWN, RunComparisonScreen, RunsScreen
from edgefed.tui.state.key_orders import READ_ONLY
from edgefed.tui.tables.run_table import columns_for
from tests.simulated_runs import simulate
from tests.tui.driving import (
    PATIENCE,
    Scenario,
    drive,
    inside,
    notices,
    press,
    screen_text,
    text_of,
    until,
)
from tests.tui.sample_runs import GONE, THREE, KnownRuns, past_run, prox, with_runs
from tests.tui.samples import (
    FakeClock,
    RecordingControl,
    dashboard,
    feed,
    fine,
    run_view,
    snapshot,
)
from tests.tui.state.test_live import Player

MARK_TWO = ["m", "down", "m"]


def lines(pilot: Pilot[None]) -> list[str]:
    return screen_text(pilot).splitlines()


@pytest.mark.parametrize(("width", "dropped"), [(116, set()), (76, {"bytes", "started"})])
def test_columns_that_do_not_fit_are_left_out(width: int, dropped: set[str]) -> None:
    found = columns_for(width)
    assert {each.key for each in columns_for(500)} - {each.key for each in found} == dropped
    assert sum(each.width + 2 for each in found) <= width


def test_the_number_of_rounds_is_not_cut() -> None:
    long = past_run(1).model_copy(update={"round": 123456, "rounds": 1_000_000})

    async def scenario(pilot: Pilot[None]) -> None:
        assert " 123456/1000000 " in screen_text(pilot)
        assert " 20/20 " in screen_text(pilot)

    drive(with_runs(past_run(2), long), scenario, (80, 24))


def kept(folder: Path, number: int = 1, **changes: Any) -> RunDetails:
    """A run with a folder, which has its model."""
    models = [{"file": "model.safetensors", "round": 20}, {"file": "best.safetensors", "round": 9}]
    return past_run(number, folder=str(folder), models=models, **changes)


def test_r_replays_the_run_of_the_row_in_place_of_the_dashboard(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(
        '{"time": "2026-01-01T00:00:00Z", "kind": "run", "run": "r-1", "status": "running"}\n'
    )

    async def scenario(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, Dashboard)
        await press(pilot, "down", "R")
        assert app._exit
        assert app.chosen_replay is not None
        assert app.chosen_replay.path == tmp_path / "events.jsonl"

    drive(with_runs(past_run(2), kept(tmp_path)), scenario)


def test_r_says_where_a_run_can_be_replayed_whose_events_are_elsewhere(tmp_path: Path) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "R")
        assert not pilot.app._exit
        ((title, text),) = notices(pilot)
        assert title == "The events of r-0001 are not on this machine."
        assert text == "on the coordinator's machine: edgefed run replay r-0001"

    drive(with_runs(kept(tmp_path)), scenario)


def test_u_resumes_the_run_of_the_row_or_says_why_not() -> None:
    control = RecordingControl()
    rows = [past_run(3, status="running"), past_run(2, status="paused")]

    async def scenario(pilot: Pilot[None]) -> None:
        for _ in range(3):
            await press(pilot, "u", "down")
        told = [text for _, text in notices(pilot)]
        assert told[0].startswith("r-0003 is running: only")
        assert [each[:16] for each in told[1:]] == ["Resuming r-0002.", "Resuming r-0001."]

    drive(with_runs(*rows, past_run(1, status="aborted"), control=control), scenario)
    assert control.orders == [("resume", "r-0002"), ("resume", "r-0001")]


def test_u_of_a_dashboard_that_only_watches_resumes_nothing() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "u")
        assert notices(pilot) == [("", READ_ONLY)]

    drive(with_runs(past_run(1, status="aborted")), scenario)


def test_e_shows_the_model_and_a_command_that_can_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []
    monkeypatch.setattr("textual.app.App.copy_to_clipboard", lambda app, text: copied.append(text))
    (tmp_path / "model.safetensors").touch()

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "e")
        text = "".join(screen_text(pilot).split())
        assert str(tmp_path / "model.safetensors") in text.replace("│", "")
        assert "edgefed predict r-0001 photo.jpg" in screen_text(pilot)
        assert "coordinator's machine" not in screen_text(pilot)
        await press(pilot, "y")
        assert copied == ["edgefed predict r-0001 photo.jpg"]
        await press(pilot, "e")
        assert isinstance(pilot.app.screen, RunsScreen)

    drive(with_runs(kept(tmp_path)), scenario)


def test_e_says_that_a_model_is_elsewhere_or_that_there_is_none(tmp_path: Path) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "e")
        assert "for the coordinator's machine" in screen_text(pilot)
        await press(pilot, "e", "down", "e")
        assert notices(pilot) == [("", NO_MODEL.format(run="r-0001"))]

    drive(with_runs(kept(tmp_path / "absent", 2), past_run(1)), scenario)


def test_one_marked_run_is_compared_with_that_of_the_row() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "m", "down", "down")
        assert "1 marked" in screen_text(pilot)
        await press(pilot, "enter")
        text = screen_text(pilot)
        assert "A r-0142" in text
        assert "B r-0140" in text
        assert "settings that differ: 4" in text
        assert "algorithm.mu" in text
        assert "seed" not in text

    drive(with_runs(*THREE), scenario)


def test_a_mark_is_taken_away_and_there_are_at_most_four() -> None:
    runs = [past_run(number) for number in range(9, 1, -1)]

    async def scenario(pilot: Pilot[None]) -> None:
        for _ in range(MOST):
            await press(pilot, "m", "down")
        await press(pilot, "m")
        assert notices(pilot)[0][1] == f"At most {MOST} runs are compared."
        assert [line[2] for line in lines(pilot)[3:8]] == [*"ABCD", " "]
        await press(pilot, "up", "m")
        assert [line[2] for line in lines(pilot)[3:8]] == [*"ABC", " ", " "]
        assert "3 marked" in screen_text(pilot)
        await press(pilot, "enter")
        text = screen_text(pilot)
        assert [letter for letter in "ABCD" if f"{letter} r-000" in text] == ["A", "B", "C"]

    drive(with_runs(*runs), scenario)


def test_the_line_at_the_bottom_says_what_the_next_m_does() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        told = []
        for key in ("", "m", "down", "m", "m", "up", "m"):
            await press(pilot, *filter(None, [key]))
            told.append(lines(pilot)[-2].strip("╰─╯ "))
        plain, alone, other, two, *again, last = told
        assert plain == last
        assert "m Mark" in plain
        assert alone == "compare with r-0142: press m on another run; m again takes it back"
        assert other == "m marks r-0141, too; enter compares it with r-0142"
        assert two == "m takes r-0141 back; enter compares the 2 marked runs"
        assert again == [other, alone]

    drive(with_runs(*THREE), scenario, (80, 24))


def test_the_comparison_scrolls_to_its_end_and_no_further() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, *MARK_TWO, "enter")
        first = inside(pilot, "#comparison")[1]
        assert first.split() == ["algorithm.name", "fedprox", "fedavg"]
        assert "training.epochs" in screen_text(pilot)
        await press(pilot, *["j"] * 30)
        end = lines(pilot)[-3]
        assert "epsilon" in end
        await press(pilot, *["k"] * 3)
        assert lines(pilot)[-3] != end
        await press(pilot, "G")
        assert lines(pilot)[-3] == end
        assert "values  j k scroll  esc Back" in lines(pilot)[-2]
        await press(pilot, "g")
        assert "1 to " in lines(pilot)[-2]

    drive(with_runs(*THREE), scenario, size=(80, 24))


def test_the_loss_is_shown_where_only_one_curve_fits() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "enter")
        assert "╭─ Accuracy" in screen_text(pilot)
        await press(pilot, "l")
        assert "╭─ Loss" in screen_text(pilot)
        assert "╭─ Accuracy" not in screen_text(pilot)

    drive(with_runs(*THREE), scenario, size=(80, 24))


def test_curves_share_their_axes_and_end_in_their_letters() -> None:
    runs = compare([past_run(1, rounds=10), past_run(2, rounds=40)]).runs
    drawn = [line.plain for line in drawing(curves_of(runs, "accuracy"), "accuracy", 60, 12)]
    assert drawn[-1].split() == ["1", "7", "13", "19", "25", "31", "40"]
    a = next(line.index("A") for line in drawn if "A" in line)
    b = next(line.index("B") for line in drawn if "B" in line)
    assert (a, b) == (5 + round(9 / 39 * 54), 59)


@pytest.mark.parametrize("letters", [False, True])
def test_each_curve_has_a_character_of_its_own(letters: bool) -> None:
    runs = compare([past_run(number, rate=2.0 * number**2) for number in range(1, 5)])
    curves = curves_of(runs.runs, "accuracy")
    glyphs = Glyphs(ascii=letters)
    marks = [*("#:+x" if letters else "⠒:+x")]
    assert glyphs.text(legend(runs, 80)).plain.split() == [
        part for row in zip("ABCD", marks, [run.run for run in runs.runs], strict=True)
        for part in row
    ]  # fmt: skip
    for curve, mark in zip(curves, marks, strict=True):
        *lines, _, _ = drawing([curve], "accuracy", 60, 12)
        cells = {char for line in lines for char in glyphs.text(line).plain[5:]} - {" "}
        if mark == "⠒":
            assert all(0x2800 < ord(cell) < 0x2900 for cell in cells - {"A"})
        else:
            assert cells == {mark, curve.letter}


def test_letters_of_curves_that_end_together_stand_side_by_side() -> None:
    runs = compare([past_run(1), past_run(2), past_run(3)]).runs
    drawn = [line.plain for line in drawing(curves_of(runs, "loss"), "loss", 60, 12)]
    assert [line[-3:] for line in drawn if "A" in line] == ["CBA"]


def test_letters_stand_for_symbols_and_odd_text_cannot_break_the_screen() -> None:
    odd = past_run(1, run="r-\x1b[31m1", name="[bold]x\ny", status="hibernating")

    async def scenario(pilot: Pilot[None]) -> None:
        assert "r-?[31m1" in screen_text(pilot)
        assert "[bold]x?y" in screen_text(pilot)
        assert "hibernating" in screen_text(pilot)
        await press(pilot, *MARK_TWO, "enter")
        text = screen_text(pilot)
        assert "A r-?[31m1" in text
        assert not {char for char in text if ord(char) > 126}

    drive(with_runs(odd, prox(2), letters=True), scenario)


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (None, UNKNOWN),
        (KnownRuns(error=ValueError("odd")), "The runs cannot be read: ValueError: odd"),
    ],
)
def test_why_there_are_no_runs(runs: KnownRuns | None, words: str) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert words in screen_text(pilot)

    drive(dashboard(screen="runs", runs=runs), scenario)


def test_the_list_is_read_again_when_a_round_has_ended() -> None:
    runs = KnownRuns(past_run(1))
    player = Player(*(fine(snapshot(run=run_view(round=number))) for number in (12, 12, 13)))
    player.app = Dashboard(
        player.feed, None, player.clock, zone=timezone.utc, screen="runs", runs=runs
    )

    async def scenario(pilot: Pilot[None]) -> None:
        asked = len(runs.asked)
        runs.runs.insert(0, past_run(2))
        await player.next(pilot)
        assert len(runs.asked) == asked
        assert "r-0002" not in screen_text(pilot)
        await player.next(pilot)
        assert "r-0002" in screen_text(pilot)

    drive(player.app, scenario)


class SlowRuns(KnownRuns):
    """Runs whose readings each take until they are let go; each tells what was known when asked."""

    def __init__(self, *runs: RunDetails) -> None:
        super().__init__(*runs)
        self.let_go: list[threading.Event] = []

    def _wait(self) -> None:
        gate = threading.Event()
        self.let_go.append(gate)
        assert gate.wait(PATIENCE)

    def list_runs(self) -> Sequence[RunRow]:
        known = tuple(self.runs)
        self._wait()
        return known

    def run_details(self, run: str) -> RunDetails:
        known = super().run_details(run)
        self._wait()
        return known


def drive_slowly(app: Dashboard, scenario: Scenario) -> None:
    """Run a scenario without waiting for what the app does in threads first."""

    async def run() -> None:
        async with app.run_test(size=(120, 36)) as pilot:
            await scenario(pilot)

    asyncio.run(run())


def test_of_two_lists_that_are_read_at_once_the_one_asked_for_last_stays() -> None:
    runs = SlowRuns(past_run(1))

    async def scenario(pilot: Pilot[None]) -> None:
        await pilot.pause(0.5)  # until what the first snapshot asks for is asked
        older = len(runs.let_go)
        assert older > 0
        runs.runs[:] = [past_run(2)]
        await pilot.press("1", "7")
        await until(pilot, lambda: len(runs.let_go) > older)
        runs.let_go[-1].set()
        await until(pilot, lambda: "r-0002" in screen_text(pilot))
        for gate in runs.let_go:
            gate.set()
        await press(pilot)
        assert "r-0002" in screen_text(pilot)
        assert "r-0001" not in screen_text(pilot)

    drive_slowly(dashboard(screen="runs", runs=runs), scenario)


def test_of_two_comparisons_that_are_read_at_once_the_one_asked_for_last_stays() -> None:
    runs = SlowRuns(past_run(1))
    player = Player(*(fine(snapshot(run=run_view(run="r-0001", round=n))) for n in (12, 13, 14)))
    player.app = Dashboard(
        player.feed, None, player.clock, zone=timezone.utc, screen="runs", runs=runs
    )

    async def scenario(pilot: Pilot[None]) -> None:
        await pilot.pause(0.5)
        for gate in runs.let_go:
            gate.set()
        await press(pilot)
        older = len(runs.let_go)
        await pilot.press("enter")
        await until(pilot, lambda: len(runs.let_go) > older)
        await pilot.pause(0.5)
        first = len(runs.let_go)
        runs.runs[:] = [past_run(1, rounds=33)]
        player.clock.seconds += PERIOD
        player.feed.deliver()
        await until(pilot, lambda: len(runs.let_go) > first)
        runs.let_go[-1].set()
        await until(pilot, lambda: "33" in text_of(pilot.app.screen.query_one("#comparison")))
        for gate in runs.let_go:
            gate.set()
        await press(pilot)
        assert "33" in text_of(pilot.app.screen.query_one("#comparison"))

    drive_slowly(player.app, scenario)


def test_a_list_that_cannot_be_read_again_stays() -> None:
    runs = KnownRuns(*THREE)

    async def scenario(pilot: Pilot[None]) -> None:
        runs.error = GONE
        await press(pilot, "1", "7")
        assert "r-0141" in screen_text(pilot)
        assert "The coordinator did not answer." in screen_text(pilot)
        runs.error = None
        await press(pilot, "1", "7")
        assert "did not answer" not in screen_text(pilot)

    drive(dashboard(screen="runs", runs=runs), scenario)


def test_runs_of_the_state_folder_are_listed_and_compared(tmp_path: Path) -> None:
    first = simulate(tmp_path)
    second = simulate(tmp_path, "--rounds", "2", "--seed", "5")
    clock = FakeClock()
    app = Dashboard(feed(clock), None, clock, screen="runs", runs=StateFolderRuns(tmp_path))

    async def scenario(pilot: Pilot[None]) -> None:
        text = screen_text(pilot)
        assert 0 < text.index(second) < text.index(first)
        await press(pilot, *MARK_TWO, "enter")
        assert isinstance(pilot.app.screen, RunComparisonScreen)
        text = screen_text(pilot)
        assert f"A {second}" in text
        assert "rounds.count" in text
        assert "settings that differ: 2" in text

    drive(app, scenario)


def test_a_state_folder_without_runs_says_so(tmp_path: Path) -> None:
    clock = FakeClock()
    source = feed(clock)

    class Still:
        def position(self) -> None: ...

        def move(self, move: str) -> None: ...

    app = Dashboard(source, None, clock, screen="runs", runs=StateFolderRuns(tmp_path),
                    replay=Still())  # type: ignore[arg-type] # fmt: skip

    async def scenario(pilot: Pilot[None]) -> None:
        assert NO_LOCAL_RUN in screen_text(pilot)

    drive(app, scenario)
