"""Snapshots of every screen from recorded runs of 40 boards: sizes, themes and states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timezone

import pytest
from textual.pilot import Pilot

from edgefed.events.feed_update import FeedUpdate
from edgefed.events.snapshot import Snapshot
from edgefed.tui.app import Dashboard
from edgefed.tui.screens.registry import Drawn, ScreenName
from edgefed.tui.theme import EDGEFED_LIGHT
from tests.tui.recorded_fleet import recorded
from tests.tui.samples import FakeClock, RecordingControl, ago, feed, fine

Compare = Callable[..., bool]

SIZES = {"80x24": (80, 24), "120x36": (120, 36), "200x50": (200, 50)}
MIDDLE = SIZES["120x36"]

PICTURES: dict[str, tuple[str, ScreenName, list[str]]] = {
    "overview": ("fedprox", "overview", []),
    "devices": ("fedprox", "devices", []),
    "device": ("fedprox", "devices", ["G", "k", "enter"]),
    "rounds-map": ("fedprox", "devices", ["m"]),
    "classes": ("fedprox", "classes", []),
    "many-classes": ("fedma", "classes", []),
    "labels": ("bounties", "labels", []),
    "experts": ("fedmoe", "experts", []),
    "matching": ("fedma", "matching", []),
}
"""Recording, screen and keys of each picture."""

METHODS: dict[ScreenName, str] = {
    "classes": "fedprox",
    "labels": "bounties",
    "experts": "fedmoe",
    "matching": "fedma",
}
"""The recordings for the screens of methods."""


def watched(update: FeedUpdate, screen: ScreenName, clock: FakeClock | None = None) -> Dashboard:
    clock = clock or FakeClock()
    return Dashboard(
        feed(clock, update), RecordingControl(), clock, zone=timezone.utc, screen=screen
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("picture", PICTURES)
def test_sizes(snap_compare: Compare, picture: str, size: str) -> None:
    name, screen, keys = PICTURES[picture]
    app = watched(recorded(name), screen)
    assert snap_compare(app, terminal_size=SIZES[size], press=keys)


@pytest.mark.parametrize("theme", ["light", "16-colours", "no-colours"])
@pytest.mark.parametrize("screen", ["overview", "devices", "classes"])
def test_themes(
    snap_compare: Compare, screen: ScreenName, theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if theme == "16-colours":
        monkeypatch.setattr(Dashboard, "colour_system", "standard")
    if theme == "no-colours":
        monkeypatch.setenv("NO_COLOR", "1")

    async def lighten(pilot: Pilot[None]) -> None:
        if theme == "light":
            pilot.app.theme = EDGEFED_LIGHT.name
            await pilot.pause()

    app = watched(recorded("fedprox"), screen)
    assert snap_compare(app, terminal_size=MIDDLE, run_before=lighten)


@pytest.mark.parametrize("screen", METHODS)
def test_empty(snap_compare: Compare, screen: ScreenName) -> None:
    """A run of another kind has none of this, and tested nothing yet."""
    run = recorded("fedprox").snapshot
    assert run is not None
    bare = Snapshot(fleet="plant-a", time=run.time, run=run.run)
    assert snap_compare(watched(fine(bare), screen), terminal_size=MIDDLE)


@pytest.mark.parametrize("screen", METHODS)
def test_loading(snap_compare: Compare, screen: ScreenName) -> None:
    clock = FakeClock()

    async def wait(pilot: Pilot[None]) -> None:
        clock.seconds += 1
        assert isinstance(pilot.app.screen, Drawn)
        pilot.app.screen.draw()
        await pilot.pause()

    app = watched(fine(None), screen, clock)
    assert snap_compare(app, terminal_size=MIDDLE, run_before=wait)


@pytest.mark.parametrize("screen", METHODS)
def test_stale(snap_compare: Compare, screen: ScreenName) -> None:
    told = "Broker unreachable: connection refused; next try in 4 s."
    old = replace(recorded(METHODS[screen]), broker=False, problem=told, since=ago(12))
    assert snap_compare(watched(old, screen), terminal_size=MIDDLE)


@pytest.mark.parametrize("screen", METHODS)
def test_error(snap_compare: Compare, screen: ScreenName) -> None:
    never = FeedUpdate(snapshot=None, broker=True, coordinator=False)
    assert snap_compare(watched(never, screen), terminal_size=MIDDLE)
