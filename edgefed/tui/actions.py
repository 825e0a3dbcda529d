"""The registry of actions, used by bindings, footer, help page and palette."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

Place = Literal["screens", "run", "everywhere", "overview", "devices", "table"]
"""Where an action works; the first three work on every screen."""

PLACES: dict[Place, str] = {
    "screens": "Screens",
    "run": "Run",
    "overview": "Overview",
    "devices": "Devices",
    "table": "Tables",
    "everywhere": "Everywhere",
}
"""Headings of the help page, in its order."""


@dataclass(frozen=True)
class Action:
    """One thing a key does.

    Attributes:
        name: stable dotted name, so that a key can be remapped.
        key: Textual's name of the key.
        label: how the key is written on the screen.
        call: the method ``action_<call>`` of the app, the screen or the table.
        word: for the footer; a trailing … means that a question follows.
        sentence: for the help page and the palette.
        place: where it works.
        footer: its rank in the footer, the lowest stays longest; 0 keeps it out.
    """

    name: str
    key: str
    label: str
    call: str
    word: str
    sentence: str
    place: Place
    footer: int = 0

    def binding(self) -> Binding:
        """Return the action as a key binding."""
        return Binding(
            self.key,
            self.call,
            self.word,
            show=False,
            key_display=self.label,
            tooltip=self.sentence,
            id=self.name,
        )


ACTIONS: tuple[Action, ...] = (
    Action("screen.overview", "1", "1", "show('overview')", "Overview",
           "the run: round, curves, attention, events", "screens", 2),
    Action("screen.devices", "2", "2", "show('devices')", "Devices",
           "one row for each device", "screens", 3),
    Action("screen.experts", "3", "3", "show('experts')", "Experts",
           "who uses which expert, in a run that has some", "screens"),
    Action("run.pause", "p", "p", "pause_or_resume", "Pause",
           "pause after the open exchange, or resume", "run", 4),
    Action("run.step", "full_stop", ".", "step", "Step",
           "when paused: one exchange, all its phases", "run", 5),
    Action("run.abort", "A", "A", "abort", "Abort…",
           "stop the run now (asks for its name)", "run", 6),
    Action("overview.curve", "l", "l", "other_curve", "Loss",
           "accuracy or loss, where only one curve fits", "overview"),
    Action("devices.open", "enter", "enter", "open_device", "Open",
           "all about the device of the row; esc goes back", "devices"),
    Action("devices.map", "m", "m", "rounds_map", "Map",
           "devices by rounds: who was slow or missing", "devices"),
    Action("overview.events", "v", "v", "all_events", "All",
           "all events, or problems and rounds alone", "overview"),
    Action("devices.filter", "slash", "/", "filter", "Filter",
           "part of an id, or state:train; esc clears", "devices"),
    Action("devices.clear", "escape", "esc", "clear_filter", "Clear",
           "clear the filter", "devices"),
    Action("devices.sort", "o", "o", "sort_next", "Sort",
           "sort by the next column", "devices"),
    Action("devices.reverse", "O", "O", "sort_reverse", "Reverse",
           "turn the order round", "devices"),
    Action("devices.wide", "w", "w", "wide", "Wide",
           "every column, scrolling sideways", "devices"),
    Action("devices.copy", "c", "c", "copy_id", "Copy id",
           "copy the id of the row", "devices"),
    Action("table.down", "j", "j", "cursor_down", "Down", "down, as the arrow does", "table"),
    Action("table.up", "k", "k", "cursor_up", "Up", "up, as the arrow does", "table"),
    Action("table.first", "g", "g", "scroll_top", "First", "first row", "table"),
    Action("table.last", "G", "G", "scroll_bottom", "Last", "last row", "table"),
    Action("view.freeze", "space", "space", "freeze", "Freeze",
           "let the display stand still; the run goes on", "everywhere", 7),
    Action("view.theme", "ctrl+t", "ctrl+t", "other_theme", "Colours",
           "light or dark; ctrl+p Theme lists more", "everywhere"),
    Action("view.help", "question_mark,f1", "?", "help", "Help",
           "this page", "everywhere", 1),
    Action("view.back", "q", "q", "back", "Back",
           "to the screen before; the Overview is the first", "everywhere"),
    Action("app.suspend", "ctrl+z", "ctrl+z", "suspend_process", "Suspend",
           "back to the shell; fg shows the dashboard again", "everywhere"),
    Action("app.quit", "ctrl+q", "ctrl+q", "quit", "Quit",
           "close the dashboard", "everywhere", 8),
)  # fmt: skip
"""Every action, in the order in which help and footer list them."""


def actions_of(*places: Place) -> Iterator[Action]:
    """Yield the actions that work in these places."""
    return (action for action in ACTIONS if action.place in places)


def bindings_of(*places: Place) -> list[BindingType]:
    """Return the key bindings of the actions that work in these places."""
    return [action.binding() for action in actions_of(*places)]


def keys_of(*names: str) -> str:
    """Return the named actions as a pane's lower border shows them: ``o Sort  w Wide``."""
    chosen = {action.name: action for action in ACTIONS}
    return "  ".join(f"{chosen[name].label} {chosen[name].word}" for name in names)
