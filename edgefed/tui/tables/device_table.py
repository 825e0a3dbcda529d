"""The device table: it builds only rows that are visible and repaints only those that changed.

Textual's ``DataTable`` builds each cell of each row and repaints all of them after any change,
which takes a sixth of a core for 200 devices at two drawings a second (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.state.display_state import Shown
from edgefed.tui.tables.columns import PADDING, DeviceColumn

_HEAD = 1
"""Lines above the rows."""

_MOST_KEPT = 8192
"""Cells that are kept as they were drawn."""


class DeviceTable(ScrollView, can_focus=True):
    """One row for each device, in the order in which they are given.

    The first column stays when the others scroll sideways, and the cursor stays on its
    device.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"device-table--head", "device-table--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_of("table"),
        Binding("down", "cursor_down", show=False),
        Binding("up", "cursor_up", show=False),
        Binding("pagedown", "cursor_page(1)", show=False),
        Binding("pageup", "cursor_page(-1)", show=False),
        Binding("home", "scroll_top", show=False),
        Binding("end", "scroll_bottom", show=False),
    ]

    class HeadClicked(Message):
        """The head of a column was clicked."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class RowOpened(Message):
        """The row of the cursor was clicked."""

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._columns: tuple[DeviceColumn, ...] = ()
        self._devices: tuple[DeviceSnapshot, ...] = ()
        self._shown: Shown | None = None
        self._cursor = 0
        self._drawn: dict[int, Strip] = {}
        self._styles: dict[str, Style] = {}
        self._padded: dict[tuple[object, ...], list[Segment]] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all rows, from the top."""
        return tuple(view.device for view in self._devices)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the columns, from the left."""
        return tuple(column.key for column in self._columns)

    @property
    def cursor_row(self) -> int:
        """The number of the row under the cursor."""
        return self._cursor

    @property
    def selected(self) -> str | None:
        """The id of the device under the cursor, None without rows."""
        return self._devices[self._cursor].device if self._devices else None

    def show(
        self, devices: Sequence[DeviceSnapshot], columns: tuple[DeviceColumn, ...], shown: Shown
    ) -> None:
        """Show these devices in this order."""
        selected = self.selected
        self._devices, self._columns, self._shown = tuple(devices), columns, shown
        last = max(0, len(devices) - 1)
        places = {view.device: row for row, view in enumerate(devices)}
        self._cursor = places.get(selected or "", min(self._cursor, last))
        width = sum(column.width + PADDING for column in columns)
        size = Size(width, len(devices) + _HEAD)
        if size != self.virtual_size:
            self.virtual_size = size
        self._repaint()

    def text(self, device: str, key: str) -> str:
        """Return the table's text for a device and a column.

        Raises:
            StopIteration: there is no such device or column.
        """
        view = next(view for view in self._devices if view.device == device)
        column = next(column for column in self._columns if column.key == key)
        return self._cell(view, column).plain.strip()

    def render_line(self, y: int) -> Strip:
        """Return a line of the visible part."""
        if y not in self._drawn:
            self._drawn[y] = self._line(y)
        return self._drawn[y]

    def _repaint(self) -> None:
        """Build the visible lines and repaint those that have changed."""
        first: int | None = None
        for y in range(self.size.height + 1):
            changed = y < self.size.height and self._build(y)
            if changed and first is None:
                first = y
            elif not changed and first is not None:  # neighbours are painted at once
                self.refresh(Region(0, first, self.size.width, y - first))
                first = None

    def _build(self, y: int) -> bool:
        """Build a line; return whether it has changed."""
        line = self._line(y)
        if self._drawn.get(y) == line:
            return False
        self._drawn[y] = line
        return True

    def _line(self, y: int) -> Strip:
        row = y - _HEAD + self.scroll_offset.y
        base = self._style()
        if y < _HEAD:
            base = self._style("device-table--head")
            texts = [self._glyphs.text(column.head()) for column in self._columns]
        elif row >= len(self._devices) or self._shown is None:
            return Strip.blank(self.size.width, base)
        else:
            if row == self._cursor:
                base = self._style("device-table--cursor")
            texts = [self._cell(self._devices[row], column) for column in self._columns]
        return self._strip(texts, base)

    def _style(self, name: str = "") -> Style:
        """Return the table's own style, with that of a part of it."""
        if name not in self._styles:
            added = self.get_component_rich_style(name) if name else Style.null()
            self._styles[name] = self.rich_style + added
        return self._styles[name]

    def _cell(self, view: DeviceSnapshot, column: DeviceColumn) -> Text:
        assert self._shown is not None
        return self._glyphs.text(column.content(view, self._shown))

    def _strip(self, texts: list[Text], base: Style) -> Strip:
        """Return cells side by side, those behind the first one scrolled sideways."""
        cells = [
            self._segments(text, column, base)
            for text, column in zip(texts, self._columns, strict=True)
        ]
        width, missing = self.size.width, self.size.width - self.virtual_size.width
        if not cells:
            return Strip.blank(width, base)
        if missing >= 0 and not self.scroll_offset.x:
            rest = [Segment(" " * missing, base)] if missing else []
            return Strip(Segment.simplify([*chain.from_iterable(cells), *rest]), width)
        fixed = Strip(cells[0])
        moving = Strip(list(chain.from_iterable(cells[1:])))
        x = self.scroll_offset.x
        moving = moving.crop(x, x + max(0, width - fixed.cell_length))
        return Strip.join([fixed, moving]).adjust_cell_length(width, base)

    def _segments(self, text: Text, column: DeviceColumn, base: Style) -> list[Segment]:
        """Return a cell with the table's padding; most are as in an earlier drawing."""
        key = (text.plain, text.style, *text.spans, column.width, column.right, base)
        if key not in self._padded:
            if len(self._padded) >= _MOST_KEPT:
                self._padded.clear()
            self._padded[key] = _padded(text, column, base, self)
        return self._padded[key]

    def watch_scroll_x(self, old_value: float, new_value: float) -> None:
        """Repaint all lines."""
        self._drawn.clear()
        super().watch_scroll_x(old_value, new_value)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Repaint all lines."""
        self._drawn.clear()
        super().watch_scroll_y(old_value, new_value)

    def notify_style_update(self) -> None:
        """Repaint all lines in other colours."""
        super().notify_style_update()
        self._styles.clear()
        self._drawn.clear()

    def on_resize(self) -> None:
        """Repaint all lines in another size."""
        self._drawn.clear()
        self.refresh()

    def action_cursor_down(self) -> None:
        """Move to the next row."""
        self._move_to(self._cursor + 1)

    def action_cursor_up(self) -> None:
        """Move to the row before."""
        self._move_to(self._cursor - 1)

    def action_cursor_page(self, pages: int) -> None:
        """Move by the visible number of rows."""
        self._move_to(self._cursor + pages * self._rows_visible())

    def action_scroll_top(self) -> None:
        """Move to the first row."""
        self._move_to(0)

    def action_scroll_bottom(self) -> None:
        """Move to the last row."""
        self._move_to(len(self._devices) - 1)

    def _rows_visible(self) -> int:
        return max(1, self.size.height - _HEAD)

    def _move_to(self, row: int) -> None:
        self._cursor = max(0, min(row, len(self._devices) - 1))
        top, room = self.scroll_offset.y, self._rows_visible()
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False)
        elif self._cursor >= top + room:
            self.scroll_to(y=self._cursor - room + 1, animate=False)
        self._repaint()

    def on_click(self, event: events.Click) -> None:
        """Sort by a head, move to a row, or open the row of the cursor."""
        row = event.y - _HEAD + self.scroll_offset.y
        if event.y < _HEAD:
            key = self._key_at(event.x)
            if key is not None:
                self.post_message(self.HeadClicked(key))
        elif row == self._cursor and self._devices:
            self.post_message(self.RowOpened())
        elif row < len(self._devices):
            self._move_to(row)

    def _key_at(self, x: int) -> str | None:
        """Return the column at a cell of the visible part."""
        if self._columns and x >= self._columns[0].width + PADDING:
            x += self.scroll_offset.x
        for column in self._columns:
            x -= column.width + PADDING
            if x < 0:
                return column.key
        return None


def _padded(text: Text, column: DeviceColumn, base: Style, table: DeviceTable) -> list[Segment]:
    """Return a cell with the table's padding, flush left or right."""
    space = column.width - text.cell_len
    side = PADDING // 2
    left, right = (side + space, side) if column.right else (side, side + space)
    console = table.app.console
    style = base + console.get_style(text.style)  # rendering a text without spans leaves it out
    parts = Segment.apply_style(text.render(console), style)
    return [Segment(" " * left, base), *parts, Segment(" " * right, base)]
