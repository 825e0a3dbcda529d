"""The screens that keys open from everywhere, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol, runtime_checkable

from textual.screen import Screen

from edgefed.tui.screens.board import Board
from edgefed.tui.screens.classes import ClassesScreen
from edgefed.tui.screens.devices import DevicesScreen
from edgefed.tui.screens.events import EventsScreen
from edgefed.tui.screens.overview import OverviewScreen
from edgefed.tui.screens.panes import (
    PanesScreen,
    TablesScreen,
    expert_panes,
    label_panes,
    matching_panes,
)
from edgefed.tui.screens.runs import RunsScreen

ScreenName = Literal[
    "overview", "devices", "classes", "labels", "experts", "matching", "runs", "tables", "events"
]
SCREENS: dict[ScreenName, Callable[[Board], Screen[None]]] = {
    "overview": OverviewScreen,
    "devices": DevicesScreen,
    "classes": ClassesScreen,
    "labels": partial(PanesScreen, panes=label_panes),
    "experts": partial(PanesScreen, panes=expert_panes),
    "matching": partial(PanesScreen, panes=matching_panes),
    "runs": RunsScreen,
    "tables": TablesScreen,
    "events": EventsScreen,
}

FIRST: ScreenName = "overview"
"""Where going back ends."""


@runtime_checkable
class Copied(Protocol):
    """A screen with something of its own to copy."""

    def copied(self) -> str | None:
        """Return it; None where there is nothing to copy now."""
        ...


@runtime_checkable
class Drawn(Protocol):
    """A screen that shows the newest snapshot."""

    def draw(self) -> None:
        """Draw every pane from the newest snapshot."""
        ...
