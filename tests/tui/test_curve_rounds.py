"""``z`` draws the curves of the last 50 rounds, or of all."""

from __future__ import annotations

from textual.pilot import Pilot

from edgefed.events.base.snapshot import PreviousRunView
from edgefed.tui.panes.base.earlier_curve import AFTER, Frame, earlier_lines
from tests.tui.driving import drive, heading, inside, press, screen_text, words
from tests.tui.samples import dashboard, fine, round_views, snapshot

LONG = snapshot(rounds=round_views(120))


def numbers(pilot: Pilot[None], curve: str = "#accuracy") -> list[str]:
    """Return the numbers of rounds below a curve."""
    return words(pilot, curve)[-1]


def test_the_heading_says_which_rounds_are_drawn() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert numbers(pilot)[0] == "1" and numbers(pilot)[-1] == "120"
        assert heading(pilot, "#accuracy").startswith("Accuracy  0.750")
        assert "z Last 50 rounds" in screen_text(pilot)
        await press(pilot, "z")
        for curve in ("#accuracy", "#loss"):
            assert numbers(pilot, curve)[0] == "71" and numbers(pilot, curve)[-1] == "120"
        assert heading(pilot, "#accuracy").startswith("Accuracy of the last 50 rounds  0.750")
        assert "z All rounds" in screen_text(pilot)
        await press(pilot, "z")
        assert numbers(pilot)[0] == "1"

    drive(dashboard(fine(LONG)), scenario, size=(160, 40))


def test_the_run_before_is_drawn_in_the_same_rounds() -> None:
    before = PreviousRunView(run="r-0", rounds=round_views(300))

    async def scenario(pilot: Pilot[None]) -> None:
        assert numbers(pilot)[-1] == "120"
        whole = inside(pilot, "#accuracy")
        await press(pilot, "z")
        assert numbers(pilot)[0] == "71" and numbers(pilot)[-1] == "120"
        assert inside(pilot, "#accuracy")[0] == whole[0], "the names of the runs stay"

    drive(dashboard(fine(LONG.model_copy(update={"previous": before}))), scenario)


def test_the_hint_is_there_only_where_it_changes_something() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "z Last 50" not in screen_text(pilot)

    drive(dashboard(fine(snapshot(rounds=round_views(50)))), scenario)


def test_the_axis_follows_the_rounds_that_are_drawn() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        lowest = inside(pilot, "#accuracy")[-3].split("┤")[0]
        await press(pilot, "z")
        zoomed = inside(pilot, "#accuracy")[-3].split("┤")[0]
        assert float(zoomed) > float(lowest)

    drive(dashboard(fine(LONG)), scenario)


def test_a_mark_of_the_run_before_is_not_hidden_by_the_curve_of_this_run() -> None:
    frame = Frame(10, 4, (1, 10), (0.0, 1.0))
    over = frame.drawn([(1, 0.5), (10, 0.5)])
    lines = earlier_lines([(number, 0.5) for number in range(1, 21)], frame, over)
    (row,) = [y for y, line in enumerate(lines) if line.endswith(AFTER)]
    assert over[row][-1] == " "
