"""Every screen from recorded runs of 40 boards: what it draws, by size, and with what colours.

``pytest tests/tui --snapshot-update`` writes the recordings anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.pilot import Pilot

from edgefed.tui.app import Dashboard
from tests.tui.drawn_colours import (
    FEW_LOOKS,
    LOOKS,
    Looks,
    draw_on,
    segments,
    unreadable,
    wrong_colours,
)
from tests.tui.drawn_screens import drawn_styles, drawn_text, recorded
from tests.tui.driving import resize
from tests.tui.screenshot_apps import Screenshot
from tests.tui.screenshot_states import STATES, StateId
from tests.tui.screenshots import DIALOGS, SCREENS, VARIANTS

SIZES = {"80x24": (80, 24), "200x50": (200, 50), "120x36": (120, 36)}
MIDDLE = "120x36"

ALL = {**SCREENS, **DIALOGS, **VARIANTS}

COLOURFUL = ("overview", "devices", "classes", "comparison")
"""Screens that have all colours of the others between them."""

PLAIN = (
    "device", "device-log", "rounds-map", "experts", "matching", "events", "quit", "many-classes"
)  # fmt: skip
"""Screens that are drawn in one look: the others have all their styles."""

RICH_STATES = (
    ("empty", "form"), ("loading", "form"), ("error", "form"), ("error", "replay"),
    ("stale", "overview"), ("stale", "devices"), ("stale", "classes"), ("stale", "comparison"),
    ("stale", "abort"),
)  # fmt: skip
"""States with a style in one of the looks that no screen and no other state has, and a filter."""


@pytest.fixture(autouse=True)
def same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let recipes and recordings have the same paths, and notices stay, wherever the tests run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Dashboard, "NOTIFICATION_TIMEOUT", 3600.0)


async def draw(
    shot: Screenshot, sizes: Sequence[str], looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Start a screen in the first size, draw it in each, and in all colours in the middle one.

    Returns:
        All pictures by what was changed.
    """
    async with shot.make().run_test(size=SIZES[sizes[0]], notifications=True) as pilot:
        await shot.reach(pilot)
        pictures = {sizes[0]: drawn_text(pilot)}
        for size in sizes[1:]:
            await resize(pilot, SIZES[size])
            pictures[size] = drawn_text(pilot)
        if pilot.app.size != SIZES[MIDDLE]:
            await resize(pilot, SIZES[MIDDLE])
            assert drawn_text(pilot) == pictures[MIDDLE], "the size before leaves no trace"
        assert len(segments(pilot)) > 10
        pictures["styles"] = checked_styles(pilot, "true")
        for terminal, theme in looks:
            await draw_on(pilot, terminal, theme, monkeypatch)
            pictures[f"{theme}, colours: {terminal}"] = checked_styles(pilot, terminal)
        return pictures


def checked_styles(pilot: Pilot[None], terminal: str) -> str:
    """Return the styles of a screen on which every text can be read."""
    drawn = segments(pilot)
    assert unreadable(drawn) == []
    assert wrong_colours(drawn, terminal) == []
    return drawn_styles(pilot)


@pytest.mark.parametrize("name", ALL)
def test_screens(name: str, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    """Screens start small or large by turns, those with all colours in the middle size."""
    small, large, middle = SIZES
    orders = [small, large, middle], [large, small, middle]
    sizes = [middle, small, large] if name in COLOURFUL else orders[[*ALL].index(name) % 2]
    looks = LOOKS if name in COLOURFUL else () if name in PLAIN else FEW_LOOKS
    pictures = asyncio.run(draw(ALL[name], sizes, looks, monkeypatch))
    assert recorded(sorted(pictures.items())) == snapshot


@pytest.mark.parametrize("state", STATES, ids="-".join)
def test_states(
    state: StateId, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = FEW_LOOKS if state in RICH_STATES else ()
    pictures = asyncio.run(draw(STATES[state], [MIDDLE], looks, monkeypatch))
    assert recorded(sorted(pictures.items())) == snapshot
