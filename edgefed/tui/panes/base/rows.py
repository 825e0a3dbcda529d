"""The base of panes with more rows than fit: a heading line, and rows that scroll below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from rich.text import Text
from textual import events
from textual.binding import BindingType

from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.state.display_state import Shown

T = TypeVar("T")

_BORDER_ENDS = 2
"""Cells that a text in the border has less than a line between the borders."""

WHEEL_ROWS = 3
"""Rows that a step of the mouse wheel moves by."""


class RowsPane(Pane, Generic[T]):
    """A table as text. It takes the focus, so that keys scroll it where several are on a screen."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_of("table"),
        ("down", "cursor_down", "Down"),
        ("up", "cursor_up", "Up"),
        ("pagedown", "page(1)", "Page down"),
        ("pageup", "page(-1)", "Page up"),
    ]

    first = 0
    """The row at the top."""

    above = 0
    """Lines above the head."""

    def top(self, shown: Shown, width: int, height: int) -> list[Text]:
        """Return lines above the head."""
        del shown, width, height
        return []

    def lines(self, shown: Shown, width: int, items: Sequence[T]) -> list[Text]:
        """Return the head, and the rows of the items that are on the screen."""
        return [self.head(shown, width), *self.rows(shown, width, items)]

    def head(self, shown: Shown, width: int) -> Text:
        """Return the line above the rows, which does not scroll."""
        raise NotImplementedError

    def items(self, shown: Shown) -> Sequence[T]:
        """Return everything that has a row, or a part of one."""
        raise NotImplementedError

    def rows(self, shown: Shown, width: int, items: Sequence[T]) -> Sequence[Text]:
        """Return the rows of some of the items: those on the screen."""
        raise NotImplementedError

    def across(self, shown: Shown) -> int:
        """Return how many items fit into a row."""
        return 1

    def noun(self) -> str:
        """Return the noun for the items, such as ``bounties``."""
        raise NotImplementedError

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the heading and the rows that fit."""
        top = self.top(shown, width, height)
        self.above = len(top)
        items, across, room = self.items(shown), self.across(shown), max(1, height - 1 - len(top))
        rows = -(-len(items) // across)
        self.first = max(0, min(self.first, rows - room))
        part = items[self.first * across : (self.first + room) * across]
        lines = [*top, *self.lines(shown, width, part)]
        for line in lines:
            line.truncate(max(1, width), overflow="ellipsis")
        return Text("\n", no_wrap=True).join(lines)

    def keys(self) -> str:
        """Return the keys of the pane, beside those of scrolling."""
        return ""

    def footing(self, shown: Shown) -> str:
        """Return the range of rows on the screen, if not all fit, and the keys that fit."""
        text = super().footing(shown)
        if text or self.face(shown) is not None:
            return text
        count, keys, across = len(self.items(shown)), self.keys(), self.across(shown)
        room = max(1, self.size.height - 1 - self.above)
        if count <= room * across:
            return keys
        first = self.first * across
        part = f"{first + 1} to {min(count, first + room * across)} of {count}"
        down, up = (shown.keys.label(f"table.{way}") for way in ("down", "up"))
        scroll = f"{down} {up} scroll" if self.has_focus else "tab selects"
        return self.fitting(
            "  ".join(filter(None, (f"{part} {self.noun()}", scroll, keys))),
            "  ".join(filter(None, (part, keys))),
            part,
        )

    def fitting(self, *texts: str) -> str:
        """Return the first text that fits into the border, or else the last one."""
        room = self.size.width - _BORDER_ENDS
        return next((text for text in texts if len(text) <= room), texts[-1])

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show that keys scroll this pane, or how to return to it."""
        super().watch_has_focus(has_focus)
        self.scroll_rows(0)

    def scroll_rows(self, rows: int) -> None:
        """Move the first row by so many."""
        self.first = max(0, self.first + rows)
        if self.shown is not None:
            self.show(self.shown)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move down."""
        event.stop()
        self.scroll_rows(WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move up."""
        event.stop()
        self.scroll_rows(-WHEEL_ROWS)

    def action_cursor_down(self) -> None:
        """Move down by one row."""
        self.scroll_rows(1)

    def action_cursor_up(self) -> None:
        """Move up by one row."""
        self.scroll_rows(-1)

    def action_scroll_top(self) -> None:
        """Move to the first row."""
        self.scroll_rows(-self.first)

    def action_scroll_bottom(self) -> None:
        """Move to the last row."""
        if self.shown is not None and self.face(self.shown) is None:
            self.scroll_rows(len(self.items(self.shown)))

    def action_page(self, pages: int) -> None:
        """Move by the visible number of rows."""
        self.scroll_rows(pages * max(1, self.size.height - 1 - self.above))
