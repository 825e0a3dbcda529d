"""Screen 2: one row for each device, and the map of rounds by devices."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input

from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.panes.devices.device_notice import DeviceNotice
from edgefed.tui.panes.runs.rounds_map import RoundsMap
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top
from edgefed.tui.screens.device import DeviceScreen
from edgefed.tui.screens.device_keys import DeviceKeysScreen
from edgefed.tui.state.display_state import Shown
from edgefed.tui.state.filtering import matches
from edgefed.tui.state.trouble import by_trouble
from edgefed.tui.tables.columns import COLUMNS, columns_for, in_order
from edgefed.tui.tables.device_table import DeviceTable


class RoundsMapScreen(Screen[None]):
    """The devices that slow rounds down or miss them."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "dismiss", "Back"),
        Binding("m", "dismiss", "Back", id="devices.map"),
        *bindings_of("table"),
        ("down", "cursor_down", "Down"),
        ("up", "cursor_up", "Up"),
        ("pagedown", "scroll_page(1)", "Page down"),
        ("pageup", "scroll_page(-1)", "Page up"),
    ]

    def __init__(self, board: Board) -> None:
        super().__init__(classes="board")
        self._board = board

    def compose(self) -> ComposeResult:
        """Lay out the map."""
        yield from top(self._board)
        yield RoundsMap(self._board.glyphs, id="rounds-map")
        yield from bottom(self._board)

    def on_screen_resume(self) -> None:
        """Draw the changes since the screen was hidden."""
        self.draw()

    def draw(self) -> None:
        """Draw every pane from the newest snapshot."""
        draw_panes(self, self._board)

    def action_cursor_down(self) -> None:
        """Move down by one row."""
        self.query_one(RoundsMap).scroll_rows(1)

    def action_cursor_up(self) -> None:
        """Move up by one row."""
        self.query_one(RoundsMap).scroll_rows(-1)

    def action_scroll_top(self) -> None:
        """Move to the first row."""
        pane = self.query_one(RoundsMap)
        pane.scroll_rows(-pane.first)

    def action_scroll_bottom(self) -> None:
        """Move to the last row."""
        devices = self._board.watch.shown().snapshot
        self.query_one(RoundsMap).scroll_rows(len(devices.devices) if devices else 0)

    def action_scroll_page(self, pages: int) -> None:
        """Move by the visible number of rows."""
        pane = self.query_one(RoundsMap)
        pane.scroll_rows(pages * max(1, pane.size.height - 2))


TROUBLE = "trouble"
"""The order that the table begins with: the worst trouble first."""

_BORDER_AND_SCROLLBAR = 3
_HINTS = (
    "devices.open",
    "devices.map",
    "devices.filter",
    "devices.sort",
    "devices.reverse",
    "devices.wide",
    "view.copy",
)


class DevicesScreen(DeviceKeysScreen):
    """The device table with its filter and its order."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS = bindings_of("devices")
    AUTO_FOCUS = "#table"

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self._query = ""
        self._sort = TROUBLE
        self._reverse = False
        self._all_columns = False
        self._borders = ("", "")

    def compose(self) -> ComposeResult:
        """Lay out filter and table."""
        glyphs = self._board.glyphs
        yield from top(self._board)
        with Vertical(id="devices"):
            yield Input(placeholder="part of an id, or state:train", id="filter", compact=True)
            yield DeviceNotice(glyphs, id="notice")
            yield DeviceTable(glyphs, id="table")
        yield from bottom(self._board, device_keys=True)

    def on_mount(self) -> None:
        """Begin without a filter."""
        self.query_one("#filter").display = False

    def on_screen_resume(self) -> None:
        """Draw the changes since the screen was hidden."""
        self.draw()

    def on_resize(self) -> None:
        """Choose the columns that fit the new width."""
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Draw table and panes from the newest snapshot."""
        shown = self._board.watch.shown()
        snapshot = shown.snapshot
        devices = snapshot.devices if snapshot else ()
        kept = [device for device in devices if matches(device, self._query)]
        columns = columns_for(devices, None if self._all_columns else self._room())
        table = self.query_one(DeviceTable)
        with self.app.batch_update():
            table.show(self._in_order(kept), columns, shown)
            table.display = bool(kept)
            table.set_class(shown.broken, "-stale")
            notice = self.query_one(DeviceNotice)
            notice.query_text = self._query
            notice.display = not kept
            self._write_borders(shown, kept)
            draw_panes(self, self._board)

    def _room(self) -> int:
        return self.size.width - _BORDER_AND_SCROLLBAR

    def _in_order(self, devices: list[DeviceSnapshot]) -> list[DeviceSnapshot]:
        if self._sort == TROUBLE:
            return by_trouble(devices, reverse=self._reverse)
        column = next(column for column in COLUMNS if column.key == self._sort)
        return in_order(devices, column, reverse=self._reverse)

    def _write_borders(self, shown: Shown, kept: list[DeviceSnapshot]) -> None:
        frame, line = self.query_one("#devices"), self._board.glyphs.line
        devices = shown.snapshot.devices if shown.snapshot else ()
        count = f"{len(kept)} of {len(devices)}" if self._query else f"{len(devices)}"
        count = count if shown.snapshot else "?"
        direction = " reversed" if self._reverse else ""
        title = f"Devices {count}   sort: {self._sort}{direction}"
        if self._query:
            title += f"   filter: {self._query}"
        borders = (line(title), line(shown.keys.hint(*_HINTS)))
        if borders != self._borders:  # even an equal one would paint the frame anew
            self._borders = borders
            frame.border_title, frame.border_subtitle = map(Content, borders)

    def action_filter(self) -> None:
        """Ask for a filter."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def action_clear_filter(self) -> None:
        """Show every device again."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.display = False
        self.query_one(DeviceTable).focus()

    @on(Input.Changed, "#filter")
    def filter_as_typed(self, event: Input.Changed) -> None:
        """Filter while the user types."""
        self._query = event.value.strip()
        self.draw()

    @on(Input.Submitted, "#filter")
    def back_to_table(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the rows."""
        event.input.display = bool(self._query)
        self.query_one(DeviceTable).focus()

    @on(DeviceTable.HeadClicked)
    def sort_by_head(self, event: DeviceTable.HeadClicked) -> None:
        """Sort by a column whose head was clicked; a second click turns the order round."""
        self._reverse = not self._reverse if event.key == self._sort else False
        self._sort = event.key
        self.draw()

    def action_sort_next(self) -> None:
        """Sort by the next column that is on the screen; after the last one by trouble."""
        keys = [TROUBLE, *self.query_one(DeviceTable).keys]
        at = keys.index(self._sort) if self._sort in keys else -1
        self._sort, self._reverse = keys[(at + 1) % len(keys)], False
        self.draw()

    def action_sort_reverse(self) -> None:
        """Turn the order round."""
        self._reverse = not self._reverse
        self.draw()

    def action_wide(self) -> None:
        """Show every column, or those that fit."""
        self._all_columns = not self._all_columns
        self.draw()

    @on(DeviceTable.RowOpened)
    def open_row(self, event: DeviceTable.RowOpened) -> None:
        """Open the device of a row that was clicked."""
        event.stop()
        self.action_open_device()

    def action_open_device(self) -> None:
        """Show all about the device under the cursor."""
        table = self.query_one(DeviceTable)
        if table.selected is not None:
            self.app.push_screen(DeviceScreen(self._board, table.selected, table.ids))

    def chosen(self) -> str | None:
        """Return the id of the device under the cursor."""
        return self.query_one(DeviceTable).selected

    def action_rounds_map(self) -> None:
        """Show the devices' outcomes in the last rounds."""
        self.app.push_screen(RoundsMapScreen(self._board))

    def copied(self) -> str | None:
        """Return the id of the device under the cursor."""
        return self.query_one(DeviceTable).selected
