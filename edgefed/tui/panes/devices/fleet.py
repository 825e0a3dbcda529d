"""The fleet as a grid of devices, those in the worst trouble first, with a cursor."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.message import Message

from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.symbols import DEVICE_LOOKS, STATES, Glyphs
from edgefed.tui.look.text_format import clean, cut, cut_middle
from edgefed.tui.look.theme import MUTED
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.panes.devices.fleet_layout import FleetLayout, fleet_layout
from edgefed.tui.panes.devices.fleet_summary import no_device
from edgefed.tui.state.device_key_orders import words_for_device
from edgefed.tui.state.display_state import Shown
from edgefed.tui.state.trouble import by_trouble
from edgefed.tui.tables.device_cells import condition

LEAST_LINES = 4
"""Lines for the cells in the smallest window."""

_TALL, _TALL_LINES = 36, 6
"""Lines of a window, and lines for the cells in it; of each further two lines one is added."""

_NAME = 14
"""Largest width of a name."""

_BORDERS = 2
_HINTS = ("device.ping", "device.pause", "device.quarantine", "device.release", "device.forget")


class FleetPane(Pane):
    """A cell for each device; the cursor begins on the worst one, then stays on its device.

    Attributes:
        orders: whether the dashboard gives orders about devices.
    """

    can_focus = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {"fleet--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_of("table"),
        ("down", "cursor_down", "Down"),
        ("up", "cursor_up", "Up"),
        ("left", "step(-1)", "Left"),
        ("right", "step(1)", "Right"),
    ]

    class Opened(Message):
        """The cell under the cursor was clicked."""

    def __init__(self, glyphs: Glyphs, *, id: str, orders: bool) -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self.orders = orders
        self._devices: tuple[DeviceSnapshot, ...] = ()
        self._sorted: list[DeviceSnapshot] = []
        self._layout = FleetLayout(0, 1, 1)
        self._chosen = ""
        self._first = 0

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the devices in the order of their cells."""
        return tuple(view.device for view in self._sorted)

    @property
    def selected(self) -> str | None:
        """The id of the device under the cursor; None without devices."""
        return self._sorted[self._cursor].device if self._sorted else None

    @property
    def _cursor(self) -> int:
        """The place of the chosen device; the first one if none was chosen, or it has left."""
        places = (place for place, view in enumerate(self._sorted) if view.device == self._chosen)
        return next(places, 0) if self._chosen else 0

    def heading(self, shown: Shown) -> str:
        """Return the number of devices, and how many are in each state, the worst first."""
        counts = Counter(view.state for view in self._sorted)
        text = f"Fleet {len(self._sorted)} " if self._sorted else "Fleet"
        for state in reversed(STATES):
            part = f"  {DEVICE_LOOKS[state].symbol} {counts[state]} {state}"
            if counts[state] and len(text) + len(part) <= self.size.width - 2:
                text += part
        return text

    def footing(self, shown: Shown) -> str:
        """Return how many devices are off the screen, and the keys that concern a device."""
        text = super().footing(shown)
        if text or not self._sorted:
            return text
        there = self._layout.named + self._layout.symbol_lines * self._layout.across
        more = f"{len(self._sorted) - there} more" if len(self._sorted) > there else ""
        keys = ("overview.open", *(_HINTS if self.orders else ()))
        hint = shown.keys.hint(*keys, words=words_for_device(shown.latest.snapshot, self.selected))
        full = "  ".join(filter(None, (more, hint)))
        return full if len(full) <= self.size.width - 2 else more

    def nothing(self, shown: Shown) -> str:
        """Return advice if there is no device."""
        return "" if shown.snapshot and shown.snapshot.devices else no_device(shown)

    def show(self, shown: Shown) -> None:
        """Take a new drawing; the height follows the number of devices and the window."""
        devices = shown.snapshot.devices if shown.snapshot else ()
        if devices is not self._devices:
            self._devices, self._sorted = devices, by_trouble(devices)
        lines = self.screen.size.height
        room = max(LEAST_LINES, _TALL_LINES + (lines - _TALL) // 2)
        self._layout = fleet_layout(len(devices), max(1, self.size.width), room)
        self.styles.height = max(1, min(room, self._layout.height)) + _BORDERS
        super().show(shown)

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the cells."""
        layout = self._layout
        lines = self._named(shown, layout)
        if layout.symbol_lines:
            self._scroll()
            lines += self._symbols(layout)
        if layout.detail:
            lines.append(_detail(self._sorted[self._cursor], shown, width))
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines[: max(1, height)])

    def _named(self, shown: Shown, layout: FleetLayout) -> list[Text]:
        views = self._sorted[: layout.named]
        names = min(_NAME, max((len(view.device) for view in views), default=0))
        lines = [Text(no_wrap=True) for _ in range(layout.rows * layout.lines)]
        for place, view in enumerate(views):
            first = place // layout.columns * layout.lines
            for number, part in enumerate(_cell(view, shown, layout, names)):
                if place == self._cursor:
                    part.stylize_before(self._cursor_style(), 0, layout.width - 1)
                lines[first + number].append_text(part)
        return lines

    def _symbols(self, layout: FleetLayout) -> list[Text]:
        start = layout.named + self._first * layout.across
        gap = " " * (layout.pitch - 1)
        lines = []
        for number in range(layout.symbol_lines):
            first = start + number * layout.across
            line = Text(no_wrap=True)
            looks = (DEVICE_LOOKS[v.state] for v in self._sorted[first : first + layout.across])
            for look, group in groupby(looks):
                line.append(f"{look.symbol}{gap}" * len(list(group)), look.colour)
            at = (self._cursor - first) * layout.pitch
            if 0 <= at < line.cell_len:
                line.stylize("reverse", at, at + 1)
            lines.append(line)
        return lines

    def _cursor_style(self) -> Style:
        return self.get_component_rich_style("fleet--cursor")

    def _scroll(self) -> None:
        """Keep the line of the cursor among the lines of symbols on the screen."""
        layout = self._layout
        row = layout.place(self._cursor)[0] - layout.rows
        last = layout.place(len(self._sorted) - 1)[0] - layout.rows
        self._first = max(0, min(self._first, last - layout.symbol_lines + 1))
        if row >= 0:
            self._first = max(min(self._first, row), row - layout.symbol_lines + 1)

    def _move_to(self, place: int) -> None:
        if self._sorted:
            self._chosen = self._sorted[max(0, min(place, len(self._sorted) - 1))].device
        if self.shown is not None:
            self.show(self.shown)

    def action_step(self, places: int) -> None:
        """Move to the next device, or the one before."""
        self._move_to(self._cursor + places)

    def action_cursor_down(self) -> None:
        """Move to the row below."""
        self._move_by_rows(1)

    def action_cursor_up(self) -> None:
        """Move to the row above."""
        self._move_by_rows(-1)

    def _move_by_rows(self, rows: int) -> None:
        if self._sorted:
            self._move_to(self._layout.beside(self._cursor, rows, len(self._sorted)))

    def action_scroll_top(self) -> None:
        """Move to the first device."""
        self._move_to(0)

    def action_scroll_bottom(self) -> None:
        """Move to the last device."""
        self._move_to(len(self._sorted) - 1)

    def on_click(self, event: events.Click) -> None:
        """Move to a cell, or open the one of the cursor."""
        offset, layout = event.get_content_offset(self), self._layout
        if offset is None or not self._sorted:
            return
        named = layout.rows * layout.lines
        below = offset.y - named
        if below >= layout.symbol_lines:
            return
        row = offset.y // layout.lines if below < 0 else layout.rows + self._first + below
        place = layout.at(row, offset.x)
        if place == self._cursor:
            self.post_message(self.Opened())
        elif place < len(self._sorted):
            self._move_to(place)


def _cell(view: DeviceSnapshot, shown: Shown, layout: FleetLayout, names: int) -> list[Text]:
    """Return the lines of a named device, each as wide as its cell."""
    known, width = condition(view, shown), layout.width
    room = names if layout.reasons else min(names, width - 10)
    first = Text(no_wrap=True).append(f"{known.symbol} ", known.colour)
    first.append(f"{cut_middle(clean(view.device), room):<{room}} ", "bold")
    if layout.reasons:
        first.append(f"{known.state} ", known.colour)
    first.append(known.silence, known.silence_colour)
    lines = [first]
    if layout.lines > 1:
        meaning = (known.reason, "") if known.reason else (known.meaning, MUTED)
        lines.append(Text(no_wrap=True).append("  ").append(*meaning))
    elif layout.reasons and known.reason:
        first.append(f"  {known.reason}")
    for line in lines:
        line.truncate(width - 1, overflow="ellipsis", pad=True)
        line.append(" ")
    return lines


def _detail(view: DeviceSnapshot, shown: Shown, width: int) -> Text:
    """Return a line about the device under the cursor."""
    known = condition(view, shown)
    line = Text(no_wrap=True).append(f"{known.symbol} ", known.colour)
    line.append(f"{cut_middle(clean(view.device), width // 3)} ", "bold")
    line.append(f"{known.state} ", known.colour).append(known.silence, known.silence_colour)
    line.append(f"  {cut(known.reason, width)}" if known.reason else "")
    line.truncate(max(1, width), overflow="ellipsis")
    return line
