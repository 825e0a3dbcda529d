"""Snapshots of every screen from recorded runs of 40 boards: sizes, themes and states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from edgefed.tui.app import Dashboard
from edgefed.tui.theme import EDGEFED_LIGHT
from tests.tui.driving import screen_text
from tests.tui.screenshot_apps import Screenshot
from tests.tui.screenshot_states import STATES, StateId
from tests.tui.screenshots import DIALOGS, SCREENS, VARIANTS
from tests.tui.state_words import UNSAID, WORDS

Compare = Callable[..., bool]

SIZES = {"80x24": (80, 24), "120x36": (120, 36), "200x50": (200, 50)}
MIDDLE = SIZES["120x36"]

ALL = {**SCREENS, **DIALOGS, **VARIANTS}
THEMED = {**SCREENS, **DIALOGS}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let recipes and recordings have the same paths wherever the tests run."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def looks_the_same(snap_compare: Compare) -> Callable[..., bool]:
    """Compare a screen with its snapshot."""

    def compare(
        shot: Screenshot,
        size: tuple[int, int] = MIDDLE,
        theme: str = "",
        says: Callable[[str], object] = str,
    ) -> bool:
        async def reach(pilot: Pilot[None]) -> None:
            await shot.reach(pilot)
            if theme:
                pilot.app.theme = theme
                await pilot.pause()
            says(screen_text(pilot))

        return snap_compare(shot.make(), terminal_size=size, run_before=reach)

    return compare


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ALL)
def test_sizes(looks_the_same: Compare, name: str, size: str) -> None:
    assert looks_the_same(ALL[name], SIZES[size])


@pytest.mark.parametrize("theme", ["light", "16-colours", "no-colours"])
@pytest.mark.parametrize("name", THEMED)
def test_themes(
    looks_the_same: Compare, name: str, theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if theme == "16-colours":
        monkeypatch.setattr(Dashboard, "colour_system", "standard")
    if theme == "no-colours":
        monkeypatch.setenv("NO_COLOR", "1")
    light = EDGEFED_LIGHT.name if theme == "light" else ""
    assert looks_the_same(THEMED[name], theme=light)


@pytest.mark.parametrize("state", STATES, ids="-".join)
def test_states(looks_the_same: Compare, state: StateId) -> None:
    def says(text: str) -> None:
        assert [words for words in WORDS[state] if words not in text] == []
        assert [words for words in UNSAID.get(state, ()) if words in text] == []

    assert looks_the_same(STATES[state], says=says)


def test_every_state_has_words() -> None:
    assert set(WORDS) == set(STATES) >= set(UNSAID)
