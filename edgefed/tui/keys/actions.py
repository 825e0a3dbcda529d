"""The registry of actions, used by bindings, footer, help page and palette."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

Place = Literal[
    "screens",
    "run",
    "replay",
    "everywhere",
    "overview",
    "devices",
    "device",
    "detail",
    "tables",
    "events",
    "classes",
    "runs",
    "comparison",
    "form",
    "table",
]
"""Where an action works; ``replay`` takes the place of ``run`` in a replay."""

EVERYWHERE: frozenset[Place] = frozenset(("screens", "run", "replay", "everywhere"))
"""The places that are on every screen."""

_SCREENS: tuple[frozenset[Place], ...] = (
    frozenset(("overview", "device", "table")),
    frozenset(("devices", "device", "table")),
    frozenset(("events", "table")),
    frozenset(("detail", "device")),
    frozenset(("classes", "table")),
    frozenset(("tables", "table")),
    frozenset(("runs", "table")),
    frozenset(("comparison", "table")),
    frozenset(("form", "table")),
)
"""The other places that some screen has together."""

_ALONE: frozenset[Place] = frozenset(("form",))
"""Places of a dialog, over which the keys of ``EVERYWHERE`` do nothing."""

_OVER_DIALOGS = ("app.quit",)
"""The actions that work over these dialogs before their own keys."""

PLACES: dict[Place, str] = {
    "screens": "Screens",
    "run": "Run",
    "replay": "Replay",
    "overview": "Overview",
    "devices": "Devices",
    "device": "One device, of a row or opened",
    "detail": "An opened device",
    "events": "Events",
    "classes": "Classes",
    "tables": "Tables of the method",
    "runs": "Runs",
    "comparison": "Runs side by side",
    "table": "Tables",
    "everywhere": "Everywhere",
    "form": "Form of a new run",
}
"""Headings of the help page, in its order."""


@dataclass(frozen=True)
class Action:
    """One function of a key.

    Attributes:
        name: stable dotted name, so that a key can be remapped.
        key: Textual's name of the key.
        label: of the key on the screen.
        call: the method ``action_<call>`` of the app, the screen or the table.
        word: for the footer; a trailing … means that a question follows.
        sentence: for the help page and the palette.
        place: where it works.
        footer: its rank in the footer, the lowest stays longest; 0 for none.
        priority: whether it works while the user types into a field that takes the key.
    """

    name: str
    key: str
    label: str
    call: str
    word: str
    sentence: str
    place: Place
    footer: int = 0
    priority: bool = False

    def binding(self) -> Binding:
        """Return the action as a key binding."""
        return Binding(
            self.key,
            self.call,
            self.word,
            show=False,
            priority=self.priority,
            key_display=self.label,
            tooltip=self.sentence,
            id=self.name,
        )


ACTIONS: tuple[Action, ...] = (
    Action("screen.overview", "1", "1", "show('overview')", "Overview",
           "the run: round, curves, attention, events", "screens", 2),
    Action("screen.devices", "2", "2", "show('devices')", "Devices",
           "one row for each device", "screens", 3),
    Action("screen.classes", "3", "3", "show('classes')", "Classes",
           "which classes and devices the model is right about", "screens", 4),
    Action("screen.labels", "4", "4", "show('labels')", "Labels",
           "label bounties, and what mixes cost", "screens", 6),
    Action("screen.experts", "5", "5", "show('experts')", "Experts",
           "who uses which expert, in a run that has some", "screens", 6),
    Action("screen.matching", "6", "6", "show('matching')", "Matching",
           "widths of matched layers, in a run that has some", "screens", 6),
    Action("screen.runs", "7", "7", "show('runs')", "Runs",
           "every run; up to four of them side by side", "screens", 7),
    Action("screen.tables", "8", "8", "show('tables')", "Tables",
           "whatever the run's method shows", "screens", 13),
    Action("screen.events", "9", "9", "show('events')", "Events",
           "the whole log of events, problems first", "screens", 7),
    Action("run.pause", "p", "p", "pause_or_resume", "Pause",
           "pause after the open exchange, or resume", "run", 4),
    Action("run.step", "full_stop", ".", "step", "Step",
           "when paused: one exchange, all its phases", "run", 8),
    Action("run.finish", "F", "F", "finish", "Finish…",
           "end the run after its round, and keep its model", "run"),
    Action("run.abort", "A", "A", "abort", "Abort…",
           "stop the run now (asks for its id)", "run", 6),
    Action("replay.play", "p", "p", "replay('play')", "Play",
           "pause or go on; at the end, from the start", "replay", 4),
    Action("replay.next_round", "full_stop", ".", "replay('next_round')", "Round",
           "to the end of the round, and pause", "replay", 8),
    Action("replay.previous_round", "comma", ",", "replay('previous_round')", "Back",
           "to the end of the round before", "replay"),
    Action("replay.round", "number_sign", "#", "ask_round", "Round…",
           "to the start of a round, by its number, and pause", "replay", 6),
    Action("replay.faster", "plus", "+", "replay('faster')", "Faster",
           "2, 4, … 64 times the speed, or no waiting", "replay", 6),
    Action("replay.slower", "minus", "-", "replay('slower')", "Slower",
           "half the speed", "replay"),
    Action("replay.next_event", "greater_than_sign", ">", "replay('next_event')", "Event",
           "to the next event, and pause", "replay"),
    Action("replay.previous_event", "less_than_sign", "<", "replay('previous_event')", "Event",
           "to the event before", "replay"),
    Action("replay.start", "left_parenthesis", "(", "replay('start')", "Start",
           "to the start of the recording", "replay"),
    Action("replay.end", "right_parenthesis", ")", "replay('end')", "End",
           "to its end", "replay"),
    Action("replay.leave", "L", "L", "quit", "Leave",
           "end the replay; back to Runs if it was opened there", "replay", 5),
    Action("overview.curve", "l", "l", "other_curve", "Loss",
           "accuracy or loss, where only one curve fits", "overview"),
    Action("overview.zoom", "z", "z", "last_rounds", "Zoom",
           "curves of the last 50 rounds, or of all", "overview"),
    Action("overview.open", "enter", "enter", "open_device", "Open",
           "all about the device of the cell", "overview"),
    Action("devices.open", "enter", "enter", "open_device", "Open",
           "all about the device of the row", "devices"),
    Action("devices.map", "m", "m", "rounds_map", "Map",
           "devices by rounds: who was slow or missing", "devices"),
    Action("overview.events", "v", "v", "all_events", "All",
           "all events, or problems and rounds alone", "overview"),
    Action("events.open", "enter", "enter", "open_device", "Device",
           "all about the device of the row", "events"),
    Action("events.search", "slash", "/", "search", "Search",
           "words, or device:ID kind:lost by:USER", "events"),
    Action("events.clear", "escape", "esc", "clear_search", "Clear",
           "clear the search", "events"),
    Action("events.order", "o", "o", "problems_first", "Order",
           "problems first, or the newest first", "events"),
    Action("events.routine", "v", "v", "all_events", "All",
           "accepted replies, too, or not", "events"),
    Action("devices.filter", "slash", "/", "filter", "Filter",
           "part of an id, or state:train", "devices"),
    Action("devices.clear", "escape", "esc", "clear_filter", "Clear",
           "clear the filter", "devices"),
    Action("devices.sort", "o", "o", "sort_next", "Sort",
           "sort by the next column", "devices"),
    Action("devices.reverse", "O", "O", "sort_reverse", "Reverse",
           "turn the order round", "devices"),
    Action("devices.wide", "w", "w", "wide", "Wide",
           "every column, scrolling sideways", "devices"),
    Action("device.ping", "i", "i", "ping_device", "Ping",
           "how long its agent takes to answer", "device"),
    Action("device.pause", "P", "P", "order_device('pause')", "Pause…",
           "ask it no more until it is resumed, or resume it", "device"),
    Action("device.quarantine", "x", "x", "order_device('quarantine')", "Quarantine…",
           "ask it no more, and refuse its replies", "device"),
    Action("device.release", "r", "r", "order_device('release')", "Release",
           "end its quarantine", "device"),
    Action("device.forget", "D", "D", "order_device('forget')", "Forget…",
           "a lost one: leave it out until it returns", "device"),
    Action("detail.log", "l", "l", "device_log", "Log",
           "the end of its agent's log", "detail"),
    Action("detail.previous", "left_square_bracket", "[", "step_device(-1)", "Previous",
           "the device before", "detail"),
    Action("detail.next", "right_square_bracket", "]", "step_device(1)", "Next",
           "the next device", "detail"),
    Action("classes.order", "o", "o", "class_order", "Order",
           "worst class first, or by label", "classes"),
    Action("classes.place", "t", "t", "other_place", "Test",
           "the coordinator's test, or that of the devices", "classes"),
    Action("tables.previous", "left_square_bracket", "[", "step_table(-1)", "Previous",
           "the table before", "tables"),
    Action("tables.next", "right_square_bracket", "]", "step_table(1)", "Next",
           "the next table", "tables"),
    Action("runs.open", "enter", "enter", "open_runs", "Curves",
           "of the row's run, or of the marked runs", "runs"),
    Action("runs.mark", "m", "m", "mark_run", "Mark",
           "mark the row's run, to compare it with others", "runs"),
    Action("runs.replay", "R", "R", "replay_run", "Replay",
           "watch the row's run again, from its beginning", "runs"),
    Action("runs.resume", "u", "u", "resume_run", "Resume",
           "go on with a run that has stopped before its end", "runs"),
    Action("runs.model", "e", "e", "show_model", "Model",
           "its path, and a command that predicts with it", "runs"),
    Action("comparison.curve", "l", "l", "other_curve", "Loss",
           "accuracy or loss, where only one curve fits", "comparison"),
    Action("form.more", "m", "m", "more", "More",
           "every value, or the essential ones alone", "form"),
    Action("form.next_choice", "space", "space", "next_choice", "Next",
           "the next choice of the value", "form"),
    Action("form.reset", "delete,backspace", "delete", "reset", "Reset",
           "the value that it began with", "form"),
    Action("form.filter", "slash", "/", "filter", "Filter",
           "only keys with a part, such as rounds", "form"),
    Action("form.next_error", "ctrl+e", "ctrl+e", "next_error", "Error",
           "the next value that is wrong", "form", priority=True),
    Action("form.advice", "a", "a", "advice", "Advice",
           "the methods that an advice compared for this recipe", "form"),
    Action("form.copy", "y", "y", "copy", "Copy",
           "copy the command line", "form"),
    Action("form.start", "ctrl+j", "ctrl+j", "start", "Start",
           "start the run", "form", priority=True),
    Action("table.down", "j", "j", "cursor_down", "Down", "down, as the arrow does", "table"),
    Action("table.up", "k", "k", "cursor_up", "Up", "up, as the arrow does", "table"),
    Action("table.first", "g", "g", "scroll_top", "First", "first row", "table"),
    Action("table.last", "G", "G", "scroll_bottom", "Last", "last row", "table"),
    Action("run.new", "n", "n", "new_run", "New run…",
           "start a run: of a recipe file, or as a past run", "everywhere", 4),
    Action("view.jump", "colon", ":", "jump", "Go to…",
           "a screen by its name, such as dev", "everywhere"),
    Action("view.copy", "y", "y", "copy", "Copy id",
           "copy the device's id, or the run's", "everywhere"),
    Action("view.freeze", "space", "space", "freeze", "Freeze",
           "let the display stand still; the run goes on", "everywhere", 9),
    Action("view.theme", "ctrl+t", "ctrl+t", "other_theme", "Colours",
           "light or dark; ctrl+p Theme lists more", "everywhere"),
    Action("view.redraw", "ctrl+l", "ctrl+l", "redraw", "Redraw",
           "draw all anew, after another program has written here", "everywhere"),
    Action("view.help", "question_mark,f1", "?", "help", "Help",
           "this page", "everywhere", 1),
    Action("view.back", "q", "q", "back", "Back",
           "to the screen before; on the Overview, as Quit", "everywhere"),
    Action("app.suspend", "ctrl+z", "ctrl+z", "suspend_process", "Suspend",
           "back to the shell; fg shows the dashboard again", "everywhere"),
    Action("app.quit", "ctrl+q", "ctrl+q", "quit", "Quit",
           "close the dashboard, from every screen", "everywhere", 10, priority=True),
)  # fmt: skip
"""Every action, in the order in which help and footer list them."""


def actions_of(*places: Place) -> Iterator[Action]:
    """Yield the actions that work in these places."""
    return (action for action in ACTIONS if action.place in places)


def bindings_of(*places: Place) -> list[BindingType]:
    """Return the key bindings of the actions that work in these places."""
    return [action.binding() for action in actions_of(*places)]


def work_together(one: Action, other: Action) -> bool:
    """Return whether one key cannot be for both: there is a screen where both work."""
    places = {one.place, other.place}
    if places == {"run", "replay"}:
        return False
    if len(places) == 1 or any(places <= screen for screen in _SCREENS):
        return True
    also_there = one.name in _OVER_DIALOGS or other.name in _OVER_DIALOGS
    return bool(EVERYWHERE & places) and (also_there or not _ALONE & places)
