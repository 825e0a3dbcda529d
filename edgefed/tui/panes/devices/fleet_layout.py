"""The places of the cells of a fleet: as much about each device as there is room for."""

from __future__ import annotations

from dataclasses import dataclass

WIDE, NARROW = 36, 18
"""Least cells of a place with a device's reason, and of one with its name."""


@dataclass(frozen=True)
class FleetLayout:
    """The places, row by row: devices by name, then a symbol for each further one.

    Attributes:
        named: number of devices with a name.
        columns: named devices in a row.
        width: cells of a named device.
        lines: lines of a named device: 2 with the reason below, 1 otherwise.
        reasons: whether a named device has its reason.
        across: symbols in a line.
        pitch: cells of a symbol.
        symbol_lines: lines of symbols on the screen.
    """

    named: int
    columns: int
    width: int
    lines: int = 1
    reasons: bool = True
    across: int = 1
    pitch: int = 1
    symbol_lines: int = 0

    @property
    def rows(self) -> int:
        """Rows of named devices."""
        return -(-self.named // self.columns)

    @property
    def detail(self) -> bool:
        """Whether a line below tells of the device under the cursor what its cell does not."""
        return not self.reasons or self.symbol_lines > 0

    @property
    def height(self) -> int:
        """All lines."""
        return self.rows * self.lines + self.symbol_lines + int(self.detail)

    def place(self, index: int) -> tuple[int, int]:
        """Return the row of a device, and its first cell in the row."""
        if index < self.named:
            return index // self.columns, index % self.columns * self.width
        index -= self.named
        return self.rows + index // self.across, index % self.across * self.pitch

    def at(self, row: int, cell: int) -> int:
        """Return the device in a row at a cell, whether or not there are so many."""
        if row < self.rows:
            column = min(self.columns - 1, cell // self.width)
            return min(self.named - 1, row * self.columns + column)
        column = min(self.across - 1, cell // self.pitch)
        return self.named + (row - self.rows) * self.across + column

    def beside(self, index: int, rows: int, count: int) -> int:
        """Return the device that many rows below one of ``count``, or the nearest one to that."""
        row, cell = self.place(index)
        last, _ = self.place(count - 1)
        return min(count - 1, self.at(max(0, min(last, row + rows)), cell))


def fleet_layout(count: int, width: int, height: int) -> FleetLayout:
    """Return the layout of ``count`` devices in ``height`` lines of ``width`` cells.

    Where not even all symbols have room, the lines of symbols scroll.
    """
    wide, narrow = max(1, width // WIDE), max(1, width // NARROW)
    columns = max(1, min(wide, count))
    for lines in (2, 1):
        if -(-count // columns) * lines <= height:
            return FleetLayout(count, columns, width // columns, lines)
    if -(-count // narrow) < height:
        return FleetLayout(count, narrow, width // narrow, reasons=False)
    reasons = wide > 2
    across = wide if reasons else narrow
    room = max(1, height - 1)
    rows, pitch = _mixed(count, width, across, room)
    return FleetLayout(
        min(count, rows * across),
        across,
        width // across,
        reasons=reasons,
        across=max(1, width // pitch),
        pitch=pitch,
        symbol_lines=room - rows,
    )


def _mixed(count: int, width: int, columns: int, room: int) -> tuple[int, int]:
    """Return the rows of named devices and the cells of a symbol: as many rows as possible."""
    for rows in range(room - 1, 0, -1):
        for pitch in (2, 1):
            if count - rows * columns <= (room - rows) * (width // pitch):
                return rows, pitch
    return (max(1, room // 3), 1) if room > 1 else (0, 1)
