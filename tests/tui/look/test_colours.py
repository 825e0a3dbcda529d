"""How colours are made readable; ``test_recorded_screens`` looks at those of every screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.pilot import Pilot

from edgefed.tui.app import Dashboard
from edgefed.tui.look.contrast import TEXT, ReadableColours, contrast, readable
from edgefed.tui.look.theme import EDGEFED, EDGEFED_LIGHT, MUTED, RULE, VERMILLION, YELLOW
from tests.tui.drawn_colours import segments, unreadable
from tests.tui.driving import drive, notices, press
from tests.tui.recorded_fleet import recorded
from tests.tui.samples import FakeClock, dashboard, feed, fine, snapshot

BLACK, WHITE = ColorTriplet(0, 0, 0), ColorTriplet(255, 255, 255)


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

    drive(dashboard(recorded("fedprox"), screen="classes"), scenario)


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
        assert unreadable(segments(pilot)) == []

    drive(dashboard(screen="devices"), scenario)


def test_without_colours_a_filled_symbol_is_not_reversed() -> None:
    style = Style(color=VERMILLION, bgcolor="#0E1318")
    alarms = [Segment(text, style) for text in ("■ ", "✗ ", "■ rejected", "██")]
    shown = ReadableColours(EDGEFED, colours=False).apply(alarms, Color(0, 0, 0))
    assert [bool(each.style and each.style.reverse) for each in shown] == [
        False, True, True, False
    ]  # fmt: skip
    assert all(each.style and each.style.bold for each in shown)


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


@pytest.mark.parametrize("downloads", [True, False])
def test_a_screenshot_is_saved_where_the_user_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, downloads: bool
) -> None:
    """Textual would fail where the user has no folder of downloads."""
    state = tmp_path / "state"
    folder = tmp_path / "home" / "Downloads"
    folder.parent.mkdir()
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("XDG_DOWNLOAD_DIR", "")
    if downloads:
        folder.mkdir()

    async def scenario(pilot: Pilot[None]) -> None:
        pilot.app.deliver_screenshot("now.svg")
        file = (folder if downloads else state) / "now.svg"
        for _ in range(200):
            # The thread that saves it tells the app last
            if any("screenshot" in message.lower() for _, message in notices(pilot)):
                assert file.read_text().rstrip().endswith("</svg>")
                return
            await pilot.pause(0.05)
        raise AssertionError(sorted(tmp_path.rglob("*")))

    drive(remembering(state / "dashboard.json"), scenario)


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
