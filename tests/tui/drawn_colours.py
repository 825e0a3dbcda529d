"""Read the colours that a dashboard draws with, and draw it with those of other terminals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from textual.color import Color
from textual.pilot import Pilot

from edgefed.tui.app import Dashboard
from edgefed.tui.look.contrast import contrast, is_drawing
from edgefed.tui.look.theme import EDGEFED, EDGEFED_LIGHT, RULE

LEAST_OF_TEXT, LEAST_OF_GRAPHICS = 4.5, 3.0
"""Contrasts that WCAG 2 asks for, at level AA."""

RULES = [Color.parse(rule).rgb for rule in (RULE, EDGEFED_LIGHT.variables["border"])]


TERMINALS: dict[str, str | None] = {"true": None, "16": "standard", "256": "256", "none": None}
"""Terminals by how many colours they have, with Rich's names of those colours."""

Looks = Sequence[tuple[str, str]]

LOOKS: Looks = (
    ("true", "textual-light"), ("true", EDGEFED_LIGHT.name),
    ("16", EDGEFED.name), ("16", EDGEFED_LIGHT.name), ("256", EDGEFED.name),
    ("none", EDGEFED_LIGHT.name), ("none", EDGEFED.name),
)  # fmt: skip
"""Terminals and themes, each time another theme than before."""

FEW_LOOKS: Looks = (("true", EDGEFED_LIGHT.name), ("16", EDGEFED.name))
"""Those for screens, dialogs and states with few colours of their own."""


def segments(pilot: Pilot[None]) -> list[Segment]:
    """Return what is drawn, without empty cells."""
    strips = pilot.app.screen._compositor.render_strips()
    return [segment for strip in strips for segment in strip if segment.text.strip()]


def unreadable(drawn: Iterable[Segment]) -> list[tuple[str, float]]:
    """Return every text that was drawn whose contrast with its background is too small."""
    found = []
    for segment in drawn:
        style = segment.style
        assert style is not None and style.color is not None and style.bgcolor is not None
        front = style.color.get_truecolor(DEFAULT_TERMINAL_THEME, foreground=True)
        back = style.bgcolor.get_truecolor(DEFAULT_TERMINAL_THEME, foreground=False)
        plain = not any(map(str.isalnum, segment.text))
        drawing = all(map(is_drawing, segment.text))
        grey = style.color.triplet is None or len(set(style.color.triplet)) == 1
        if drawing and grey:
            continue  # a scrollbar is drawn like a bar, and only colours tell them apart
        if (plain and tuple(front) in RULES) or all(map(_is_quiet, segment.text)):
            continue
        if style.dim or contrast(front, back) < (LEAST_OF_GRAPHICS if drawing else LEAST_OF_TEXT):
            found.append((segment.text, contrast(front, back)))
    return found


def _is_quiet(char: str) -> bool:
    """Return whether a character is part of a border or of the empty end of a bar."""
    return char.isspace() or 0x2500 <= ord(char) <= 0x257F or char == "░"


def wrong_colours(drawn: Iterable[Segment], terminal: str) -> list[Style | None]:
    """Return the styles with a colour that a terminal does not have."""
    return [each.style for each in drawn if not _has(terminal, each.style)]


def _has(terminal: str, style: Style | None) -> bool:
    colour = style.color if style is not None else None
    if colour is None:
        return False
    if terminal in ("true", "none"):
        rgb = colour.triplet
        return rgb is not None and (terminal == "true" or rgb.red == rgb.green == rgb.blue)
    numbers = range(16) if terminal == "16" else range(16, 256)
    return colour.number in numbers


async def draw_on(
    pilot: Pilot[None], terminal: str, theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draw all anew as another terminal has it; the theme must be another one than before."""
    app = pilot.app
    assert isinstance(app, Dashboard)
    assert app.theme != theme
    monkeypatch.setattr(Dashboard, "colour_system", TERMINALS[terminal])
    app.no_color = terminal == "none"
    app._readable.clear()
    app.theme = theme
    await pilot.pause()
    await pilot.pause()
