"""Screen 6 shows the widths of matched layers, now and by round, and how much they grew."""

from __future__ import annotations

from textual.pilot import Pilot

from edgefed.events.layer_table import growth_of
from edgefed.events.matching_events import matching_events
from edgefed.events.snapshot import LayerMatchView, MatchingView, Snapshot
from tests.tui.driving import drive, heading, press, screen_text, words
from tests.tui.folded import RUN, folded, happened, run_of
from tests.tui.recorded_fleet import recorded
from tests.tui.samples import dashboard, fine

SMALL = (80, 24)


def layer(name: str, atoms: int = 0) -> LayerMatchView:
    objective = -12.5 if atoms else None
    return LayerMatchView(layer=name, local=20, atoms=atoms, holders=2.5, objective=objective)


def matched(*rounds: tuple[int, ...]) -> Snapshot:
    """Return a run of two layers, of which each round matched so many with these atoms."""
    events = [run_of(algorithm="fedma")]
    start = {0: layer("conv1"), 1: layer("conv2")}
    for number, widths in enumerate(rounds, 1):
        changed = {at: layer(f"conv{at + 1}", atoms) for at, atoms in enumerate(widths)}
        growth = 1.25 if len(widths) == 2 else None
        view = MatchingView(round=number, matched=len(widths), devices=4, growth=growth, total=2)
        changed = {**start, **changed} if number == 1 else changed
        events += [happened("matching", **each) for each in matching_events(RUN, view, changed)]
    return folded(*events)


def test_a_layer_has_what_match_show_has() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "6")
        found = words(pilot, "#layers")
        assert found[0] == [
            "LAYER", "LOCAL", "ATOMS", "GROWTH", "HOLDERS", "OBJECTIVE", "MATCHED",
        ]  # fmt: skip
        assert found[1] == ["conv1", "20", "30", "1.50", "2.50", "-12.5", "round", "2"]
        assert found[2] == ["conv2", "20", "24", "1.20", "2.50", "-12.5", "round", "1"]
        title = heading(pilot, "#layers")
        assert title == "Matched layers  round 2, 1 of 2 layers matched, 4 devices"

    drive(dashboard(fine(matched((25, 24), (30,)))), scenario, size=SMALL)


def test_the_widths_stand_by_round() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        found = words(pilot, "#widths")
        assert found[0] == ["LAYER", "r1", "r2", "r3", "TREND"]
        assert found[1] == ["conv1", "20", "25", "40", "▄▅█"]
        assert found[2] == ["conv2", "24", "24", "·", "██·"]

    drive(dashboard(fine(matched((20, 24), (25, 24), (40,))), screen="matching"), scenario)


def test_a_layer_that_no_round_has_matched_says_so() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert words(pilot, "#layers")[2] == ["conv2", "20", "·", "·", "·", "·", "not", "yet"]
        assert words(pilot, "#widths")[2] == ["conv2", "·", "·"]

    drive(dashboard(fine(matched((22,))), screen="matching"), scenario, size=SMALL)


def test_of_many_rounds_the_last_ones_have_numbers() -> None:
    snapshot = matched(*((20 + number, 24) for number in range(1, 41)))

    async def scenario(pilot: Pilot[None]) -> None:
        head, *layers = words(pilot, "#widths")
        assert head[1] == "r32" and head[-2:] == ["r40", "TREND"]
        assert layers[0][1] == "52" and layers[0][-2] == "60"
        assert "Atoms by round  40 rounds" in screen_text(pilot)

    drive(dashboard(fine(snapshot), screen="matching"), scenario, size=SMALL)


def test_growth_is_that_of_the_recording() -> None:
    view = recorded("fedma").snapshot
    assert view is not None and view.matching is not None
    growths = [growth_of(each) for each in view.matching.layers]

    async def scenario(pilot: Pilot[None]) -> None:
        found = words(pilot, "#layers")
        assert [row[3] for row in found[1:5]] == [f"{growth:.2f}" for growth in growths]
        assert "2 of 4 layers matched, growth 1.50, 21 devices" in screen_text(pilot)

    drive(dashboard(recorded("fedma"), screen="matching"), scenario)


def test_a_run_without_matching_says_how_to_start_one_that_has_it() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "This run matches no layers" in screen_text(pilot)
        assert "edgefed run start --algorithm fedma" in screen_text(pilot)

    drive(dashboard(recorded("fedprox"), screen="matching"), scenario, size=SMALL)
