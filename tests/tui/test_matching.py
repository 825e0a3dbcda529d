"""Screen 6 shows the widths of matched layers, now and by round, and how much they grew."""

from __future__ import annotations

from textual.pilot import Pilot

from edgefed.events.base.method_tables import table_events, within_limits
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.methods.matching_table import layer_row, layer_table
from tests.tui.driving import drive, heading, press, screen_text, words
from tests.tui.folded import RUN, folded, happened, run_of
from tests.tui.recorded_fleet import recorded
from tests.tui.samples import dashboard, fine

SMALL = (80, 24)


def matched(*rounds: tuple[int, ...]) -> Snapshot:
    """Return a run of two layers, of which each round matched so many with these atoms."""
    events, before, atoms = [run_of(algorithm="fedma")], None, [0, 0]
    for number, widths in enumerate(rounds, 1):
        atoms = [*widths, *atoms[len(widths) :]]
        rows = [
            layer_row(f"conv{at + 1}", 20, atoms[at], 2.5, -12.5, number - (at >= len(widths)))
            for at in range(2)
        ]
        table = layer_table(rows, number, 4, 1.25 if len(widths) == 2 else None)
        (view,) = within_limits([table.model_copy(update={"round": None})])
        events += [happened("table", **each) for each in table_events(RUN, number, before, view)]
        before = view
    return folded(*events)


def test_a_layer_has_what_match_show_has() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "6")
        found = words(pilot, "#layers")
        verdict = "matching found 30 units for the 20 of a device in 1 of 2 layers; on average"
        assert " ".join(found[0]) == verdict, "verdict first"
        assert " ".join(found[1]) == "2.5 of 4 devices hold a unit", "on a line of its own"
        assert found[2][:2] == ["devices", "4"]
        assert found[3] == [
            "LAYER", "LOCAL", "ATOMS", "GROWTH", "HOLDERS", "OBJECTIVE", "MATCHED", "[ROUND]",
            "TREND",
        ]  # fmt: skip
        assert found[4] == ["conv1", "20", "30", "1.50", "2.50", "-12.5", "2", "▇█"]
        assert found[5] == ["conv2", "20", "24", "1.20", "2.50", "-12.5", "1", "█·"]
        assert heading(pilot, "#layers") == "matched layers  round 2"

    drive(dashboard(fine(matched((25, 24), (30,)))), scenario, size=SMALL)


def test_the_widths_stand_by_round() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        found = words(pilot, "#widths")
        assert found[0] == ["SERIES", "r1", "r2", "r3", "TREND"]
        assert found[1] == ["conv1", "20", "25", "40", "▄▅█"]
        assert found[2] == ["conv2", "24", "24", "·", "██·"]
        assert heading(pilot, "#widths") == "By round  3 rounds"

    drive(dashboard(fine(matched((20, 24), (25, 24), (40,))), screen="matching"), scenario)


def test_a_layer_that_no_round_has_matched_has_no_numbers() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert words(pilot, "#layers")[5][:7] == ["conv2", "20", *"·····"]

    drive(dashboard(fine(matched((22,))), screen="matching"), scenario, size=SMALL)


def test_of_many_rounds_the_last_ones_have_numbers() -> None:
    snapshot = matched(*((20 + number, 24) for number in range(1, 41)))

    async def scenario(pilot: Pilot[None]) -> None:
        head, *layers = words(pilot, "#widths")
        assert head[1] == "r34" and head[-2:] == ["r40", "TREND"]
        assert layers[0][1] == "54" and layers[0][-2] == "60"

    drive(dashboard(fine(snapshot), screen="matching"), scenario, size=SMALL)


def test_growth_is_that_of_the_recording() -> None:
    view = recorded("fedma").snapshot
    assert view is not None
    rows = view.tables[0].table.rows

    async def scenario(pilot: Pilot[None]) -> None:
        found = words(pilot, "#layers")
        assert [row[-5] for row in found[5:9]] == [f"{row.cells[2]:.2f}" for row in rows]
        assert "for the 70 of a device in 2 of 4 layers; growth 1.50;" in screen_text(pilot)

    drive(dashboard(recorded("fedma"), screen="matching"), scenario)


def test_a_run_without_matching_says_how_to_start_one_that_has_it() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "This run matches no layers" in screen_text(pilot)
        assert "edgefed run start --algorithm fedma" in screen_text(pilot)

    drive(dashboard(recorded("fedprox"), screen="matching"), scenario, size=SMALL)
