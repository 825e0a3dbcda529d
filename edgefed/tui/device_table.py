"""The device table: it updates only cells that changed and keeps the cursor on its device."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.widgets import DataTable

from edgefed.events.snapshot import DeviceView
from edgefed.tui.actions import bindings_of
from edgefed.tui.columns import Column
from edgefed.tui.display_state import Shown
from edgefed.tui.symbols import Glyphs


class DeviceTable(DataTable[Text]):
    """One row for each device; the row's key is the device id."""

    BINDINGS = bindings_of("table")

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(
            id=id, cursor_type="row", zebra_stripes=False, cursor_foreground_priority="renderable"
        )
        self.fixed_columns = 1
        self._glyphs = glyphs
        self._columns: tuple[Column, ...] = ()
        self._cells: dict[str, list[Text]] = {}

    @property
    def selected(self) -> str | None:
        """The id of the device under the cursor, None without rows."""
        if not 0 <= self.cursor_row < self.row_count:
            return None
        return self.ordered_rows[self.cursor_row].key.value

    def show(
        self, devices: Sequence[DeviceView], columns: tuple[Column, ...], shown: Shown
    ) -> None:
        """Show these devices in this order."""
        selected = self.selected
        if _layout(columns) != _layout(self._columns):
            self._set_columns(columns)
        wanted = {device.device: self._row(device, shown) for device in devices}
        for gone in self._cells.keys() - wanted.keys():
            self.remove_row(gone)
            del self._cells[gone]
        for device, cells in wanted.items():
            self._write(device, cells)
        self._arrange(list(wanted))
        if selected in wanted:
            self.move_cursor(row=self.get_row_index(selected), animate=False, scroll=False)

    def _set_columns(self, columns: tuple[Column, ...]) -> None:
        self.clear(columns=True)
        self._cells.clear()
        self._columns = columns
        for column in columns:
            head = self._glyphs.text(column.head())
            self.add_column(head, width=column.width, key=column.key)

    def _row(self, device: DeviceView, shown: Shown) -> list[Text]:
        return [self._glyphs.text(column.content(device, shown)) for column in self._columns]

    def _write(self, device: str, cells: list[Text]) -> None:
        before = self._cells.get(device)
        if before is None:
            self.add_row(*cells, key=device)
        else:
            for index, column in enumerate(self._columns):
                if _same(before[index], cells[index]):
                    cells[index] = before[index]
                else:
                    self.update_cell(device, column.key, cells[index])
        self._cells[device] = cells

    def _arrange(self, wanted: list[str]) -> None:
        """Bring the rows into the wanted order, if they are not in it."""
        if [row.key.value for row in self.ordered_rows] == wanted:
            return
        # By the cells themselves: two ids that are cut may look the same.
        rank = {id(self._cells[device][0]): index for index, device in enumerate(wanted)}
        self.sort(self._columns[0].key, key=lambda cell: rank[id(cell)])


def _same(old: Text, new: Text) -> bool:
    return old == new and old.style == new.style  # equality leaves out the style of the whole


def _layout(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    return [(column.key, column.width) for column in columns]
