"""The legend of the symbols of device states."""

from __future__ import annotations

from functools import cache

from rich.text import Text

from edgefed.tui.look.symbols import DEVICE_LOOKS
from edgefed.tui.look.theme import MUTED
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.state.display_state import Shown


class Legend(Pane):
    """Every state with its symbol, in columns."""

    def heading(self, shown: Shown) -> str:
        """Return the pane's name."""
        return "States"

    def footing(self, shown: Shown) -> str:
        """Return nothing: meanings do not get old."""
        return ""

    def face(self, shown: Shown) -> None:
        """Return None: there is always a meaning to show."""

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the states in as many columns as the height asks for."""
        return legend(height)


@cache
def legend(height: int) -> Text:
    """Return all states with their meanings in at most ``height`` lines."""
    cells = [
        Text.assemble((f"{look.symbol} {state}", look.colour), "  ", (look.meaning, MUTED))
        for state, look in DEVICE_LOOKS.items()
    ]
    rows = max(1, height)
    columns = [cells[start : start + rows] for start in range(0, len(cells), rows)]
    widths = [max(cell.cell_len for cell in column) for column in columns]
    lines = [Text(no_wrap=True, overflow="ellipsis") for _ in range(rows)]
    for column, wide in zip(columns, widths, strict=True):
        for line, cell in zip(lines, column, strict=False):
            cell.pad_right(wide - cell.cell_len + 3)
            line.append_text(cell)
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)
