"""Every text can be read: in both themes, with 16 colours and without colours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from textual.color import Color
from textual.pilot import Pilot

from edgefed.tui.app import Dashboard
from edgefed.tui.contrast import TEXT, ReadableColours, contrast, is_drawing, readable
from edgefed.tui.screens.registry import ScreenName
from edgefed.tui.theme import EDGEFED, EDGEFED_LIGHT, MUTED, RULE, VERMILLION, YELLOW
from tests.tui.driving import drive, press
from tests.tui.recorded_fleet import recorded
from tests.tui.samples import (
    FakeClock,
    RecordingControl,
    ago,
    dashboard,
    feed,
    fine,
    mixing,
    snapshot,
)
from tests.tui.test_screens import BROKER_LOST

BLACK, WHITE = ColorTriplet(0, 0, 0), ColorTriplet(255, 255, 255)
RULES = [Color.parse(rule).rgb for rule in (RULE, EDGEFED_LIGHT.variables["border"])]


def segments(pilot: Pilot[None]) -> list[Segment]:
    strips = pilot.app.screen._compositor.render_strips()
    return [segment for strip in strips for segment in strip if segment.text.strip()]


def unreadable(pilot: Pilot[None]) -> list[tuple[str, float]]:
    """Return every text on the screen whose contrast with its background is too small."""
    found = []
    for segment in segments(pilot):
        style = segment.style
        assert style is not None and style.color is not None and style.bgcolor is not None
        front = style.color.get_truecolor(DEFAULT_TERMINAL_THEME, foreground=True)
        back = style.bgcolor.get_truecolor(DEFAULT_TERMINAL_THEME, foreground=False)
        plain = not any(map(str.isalnum, segment.text))
        rule = plain and tuple(front) in RULES
        if rule or all(map(is_drawing, segment.text)):
            continue
        if contrast(front, back) < TEXT:
            found.append((segment.text, contrast(front, back)))
    return found


RECORDINGS: dict[ScreenName, str] = {
    "classes": "fedprox",
    "labels": "bounties",
    "experts": "fedmoe",
    "matching": "fedma",
}


def watched(screen: ScreenName, *, stale: bool = False) -> Dashboard:
    update = BROKER_LOST if stale else fine(mixing(dead=(1,)))
    if screen in RECORDINGS:
        update = recorded(RECORDINGS[screen])
        if stale:
            update = replace(update, broker=False, problem="Broker unreachable.", since=ago(12))
    return dashboard(update, control=RecordingControl(), screen=screen)


@pytest.mark.parametrize("theme", [EDGEFED.name, EDGEFED_LIGHT.name, "textual-light"])
@pytest.mark.parametrize("screen", get_args(ScreenName))
@pytest.mark.parametrize("stale", [False, True])
def test_every_text_has_contrast(screen: ScreenName, theme: str, stale: bool) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        pilot.app.theme = theme
        await press(pilot)
        assert len(segments(pilot)) > 40
        assert unreadable(pilot) == []
        for keys in (["question_mark"], ["escape", "A"], ["x"]):
            await press(pilot, *keys)
            assert unreadable(pilot) == [], keys

    drive(watched(screen, stale=stale), scenario)


@pytest.mark.parametrize("theme", [EDGEFED.name, EDGEFED_LIGHT.name])
@pytest.mark.parametrize("screen", ["devices", *RECORDINGS])
@pytest.mark.parametrize(("system", "least", "most"), [("standard", 0, 15), ("256", 16, 255)])
def test_few_colours_are_readable(
    theme: str,
    screen: ScreenName,
    system: str,
    least: int,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Dashboard, "colour_system", system)

    async def scenario(pilot: Pilot[None]) -> None:
        pilot.app.theme = theme
        await press(pilot)
        styles = [segment.style for segment in segments(pilot)]
        numbers = [style.color.number for style in styles if style and style.color]
        assert len(numbers) == len(styles)
        assert all(number is not None and least <= number <= most for number in numbers)
        assert unreadable(pilot) == []

    drive(watched(screen), scenario)


@pytest.mark.parametrize("system", ["standard", None])
def test_empty_cells_have_the_background_of_the_text_beside_them(
    system: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if system is None:
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.setattr(Dashboard, "colour_system", system)

    async def scenario(pilot: Pilot[None]) -> None:
        strips = pilot.app.screen._compositor.render_strips()
        body = [segment for strip in strips[2:-1] for segment in strip]
        styles = [each.style for each in body if each.style and not each.style.reverse]
        assert len({style.bgcolor for style in styles if style.bgcolor}) == 1

    drive(watched("classes"), scenario)


@pytest.mark.parametrize("theme", ["ansi-light", "ansi-dark"])
def test_on_an_unknown_background_text_has_the_terminals_own_colour(theme: str) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        pilot.app.theme = theme
        await press(pilot)
        found = segments(pilot)
        lost = [each.style for each in found if each.text.strip() == "✗ lost"]
        assert lost and all(style and style.bold and style.reverse for style in lost)
        for style in (each.style for each in found):
            assert style is not None and style.bgcolor is not None
            if style.bgcolor.triplet is None:
                assert style.color is None or style.color.triplet is None

    drive(dashboard(screen="devices"), scenario)


@pytest.mark.parametrize("screen", RECORDINGS)
def test_without_colours_every_text_is_grey(
    screen: ScreenName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def scenario(pilot: Pilot[None]) -> None:
        styles = [each.style for each in segments(pilot)]
        colours = [style.color.triplet for style in styles if style and style.color]
        assert len(colours) == len(styles)
        assert all(rgb and rgb.red == rgb.green == rgb.blue for rgb in colours)
        assert unreadable(pilot) == []

    drive(watched(screen), scenario)


def test_without_colours_alarms_stand_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def scenario(pilot: Pilot[None]) -> None:
        found = segments(pilot)
        lost = [each.style for each in found if each.text.strip() == "✗ lost"]
        done = [each.style for each in found if each.text.strip() == "✓ done"]
        assert lost and all(style and style.bold and style.reverse for style in lost)
        assert done and not any(style and style.reverse for style in done)
        for each in found:
            assert each.style is not None and each.style.color is not None
            rgb = each.style.color.triplet
            assert rgb is not None and rgb.red == rgb.green == rgb.blue, each
        assert unreadable(pilot) == []

    drive(dashboard(screen="devices"), scenario)


@pytest.mark.parametrize("colour", [YELLOW, MUTED, VERMILLION])
@pytest.mark.parametrize("back", [BLACK, WHITE, ColorTriplet(128, 128, 128)])
def test_a_colour_is_changed_until_it_is_readable(colour: str, back: ColorTriplet) -> None:
    shown = readable(ColorTriplet(*Color.parse(colour).rgb), back, TEXT)
    assert contrast(shown, back) >= TEXT


def test_known_contrasts() -> None:
    assert contrast(BLACK, WHITE) == pytest.approx(21.0)
    assert contrast(WHITE, ColorTriplet(0x76, 0x76, 0x76)) == pytest.approx(4.54, abs=0.01)
    enough = ColorTriplet(0x14, 0x20, 0x2B)
    assert readable(enough, WHITE, TEXT) == enough


def test_borders_stay_quiet() -> None:
    style = Style(color=RULE, bgcolor="#0E1318")
    shown = ReadableColours(EDGEFED).apply([Segment("│", style), Segment("a", style)],
                                           Color(0, 0, 0))  # fmt: skip
    assert shown[0].style == style
    assert shown[1].style != style


def remembering(path: Path) -> Dashboard:
    clock = FakeClock()
    return Dashboard(feed(clock, fine(snapshot())), None, clock, preferences=path)


def test_the_theme_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "state" / "dashboard.json"

    async def change(pilot: Pilot[None]) -> None:
        assert pilot.app.theme == EDGEFED.name
        await press(pilot, "ctrl+t")
        assert pilot.app.theme == EDGEFED_LIGHT.name

    async def look(pilot: Pilot[None]) -> None:
        assert pilot.app.theme == EDGEFED_LIGHT.name
        await press(pilot, "ctrl+t")
        assert pilot.app.theme == EDGEFED.name

    drive(remembering(path), change)
    drive(remembering(path), look)
    path.write_text('{"theme": "no such theme"}')
    drive(remembering(path), change)
    path.write_bytes(b"{")
    drive(remembering(path), change)
