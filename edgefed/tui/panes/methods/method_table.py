"""A table that the run's method shows: its rows, and its series by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from rich.text import Text

from edgefed.events.base.method_tables import Cell, Column, MethodTable, Row, TableView, table_named
from edgefed.events.methods.share_courses import share_places
from edgefed.terminal.units import counted
from edgefed.tui.look.symbols import WORD_COLOURS, Glyphs
from edgefed.tui.look.text_format import bar, clean, cut, cut_middle, sparks
from edgefed.tui.look.theme import MUTED, ORANGE, RULE, SKY
from edgefed.tui.panes.base.rows import RowsPane
from edgefed.tui.state.display_state import Shown

_KEYS = (5, 14, 20)
"""Least width of a key, the largest in 80 columns, and the largest."""

_WIDE = 90
"""Cells from which keys get more room."""

_TEXT = 24
"""Most cells of a column."""

_BAR, _SHADE = 7, 4
"""Cells of a bar and of a shade, with the space before them."""

_TREND = (6, 24)
"""Least and most cells of a row's series, with the space before it."""

_SHADES = ((0.75, "███"), (0.5, "▓▓▓"), (0.25, "▒▒▒"), (0.1, "░░░"))

_VALUE = 8
"""Cells of a value of a round."""

Pick = Callable[[Sequence[TableView]], TableView | None]
"""Picks the table to show from all of a run."""


def named(name: str) -> Pick:
    """Return a function that picks the table of a name."""
    return lambda views: table_named(views, name)


@dataclass(frozen=True)
class TableLayout:
    """How the width of a pane is shared.

    Attributes:
        key: cells of a key.
        columns: cells of each column; 0 for those that share one cell a row.
        bars: whether there is room for bars and shades.
        trend: cells of the rows' series.
    """

    key: int
    columns: tuple[int, ...]
    bars: bool
    trend: int


class TablePane(RowsPane[Row]):
    """A table's verdict, the series that belong to no row, and the rows.

    Args:
        glyphs: symbols that the terminal can show.
        pick: picks the table.
        absent: text for a run without it.
        leads: whether it is its screen's first pane.
        order: sort key of the rows; None for the table's order.
        stepped: whether keys step through the tables.
    """

    def __init__(
        self,
        glyphs: Glyphs,
        *,
        id: str,  # noqa: A002
        pick: Pick,
        absent: str,
        leads: bool = False,
        order: Callable[[Row], Any] | None = None,
        stepped: bool = False,
    ) -> None:
        super().__init__(glyphs, id=id)
        self.leads = leads
        self._pick = pick
        self._absent = absent
        self._order = order
        self._stepped = stepped

    def view(self, shown: Shown) -> TableView | None:
        """Return the table; None without it."""
        return self._pick(shown.snapshot.tables) if shown.snapshot else None

    def heading(self, shown: Shown) -> str:
        """Return the table's name and the round."""
        view = self.view(shown)
        if view is None:
            return ""
        text = f"{clean(view.table.name)}  round {view.round}"
        names = [other.table.name for other in (shown.snapshot.tables if shown.snapshot else ())]
        if self._stepped and len(names) > 1:
            text += f"  table {names.index(view.table.name) + 1} of {len(names)}"
        return text

    def keys(self) -> str:
        """Return the keys that step through the tables."""
        if not self._stepped or self.shown is None:
            return ""
        before, after = (self.shown.keys.label(f"tables.{way}") for way in ("previous", "next"))
        return f"{before} {after} tables"

    def nothing(self, shown: Shown) -> str:
        """Return that there is no run, or that it has no such table."""
        return super().nothing(shown) or ("" if self.view(shown) else self._absent)

    def noun(self) -> str:
        """Return the noun for the items."""
        return "rows"

    def items(self, shown: Shown) -> Sequence[Row]:
        """Return the rows."""
        view = self.view(shown)
        rows = view.table.rows if view is not None else ()
        return sorted(rows, key=self._order) if self._order is not None else rows

    def top(self, shown: Shown, width: int, height: int) -> list[Text]:
        """Return verdict, warning, and a line for each series that belongs to no row."""
        view = self.view(shown)
        if view is None:
            return []
        table, lines = view.table, list[Text]()
        most = max(1, height // 3)
        verdict = wrap(clean(table.verdict), max(8, width), max_lines=most, placeholder=" …")
        lines += map(Text, verdict)
        if table.warning:
            lines.append(Text(f"! {clean(table.warning)}", ORANGE))
        keys = {row.key for row in table.rows}
        others = [name for name in table.series if name not in keys]
        for name in others[: max(0, height // 3 - len(lines))]:
            past, value = _past(view, name), table.series[name]
            text = "·" if value is None else f"{value:.4g}"
            line = Text.assemble((f"{clean(name)} ", MUTED), f"{text} ")
            lines.append(line.append(_curve(past, width - line.cell_len), SKY))
        if view.left_out:
            lines.append(Text(f"{counted(view.left_out, 'row')} more", MUTED))
        return lines

    def lines(self, shown: Shown, width: int, items: Sequence[Row]) -> list[Text]:
        """Return the head and rows."""
        view = self.view(shown)
        if view is None:
            return []
        classes = shown.run.class_names if shown.run else ()
        table = view.table.model_copy(update={"rows": tuple(items)})
        texts = [tuple(map(clean, text)) for text in table.texts(classes)]
        has_trend = any(row.key in table.series for row in items)
        layout = _layout(table, texts, width, has_trend=has_trend)
        tops = [
            _top(column, number, view.table.rows) for number, column in enumerate(table.columns)
        ]
        return [
            _head(table, layout),
            *(_row(view, row, text, layout, tops) for row, text in zip(items, texts, strict=True)),
        ]


class SeriesPane(RowsPane[str]):
    """The series of a table: a row for each, with its values after the last rounds."""

    def __init__(
        self,
        glyphs: Glyphs,
        *,
        id: str,  # noqa: A002
        pick: Pick,
    ) -> None:
        super().__init__(glyphs, id=id)
        self._pick = pick

    def view(self, shown: Shown) -> TableView | None:
        """Return the table; None without it."""
        return self._pick(shown.snapshot.tables) if shown.snapshot else None

    def heading(self, shown: Shown) -> str:
        """Return how many rounds there are."""
        view = self.view(shown)
        return f"By round  {counted(len(view.history), 'round')}" if view else "By round"

    def nothing(self, shown: Shown) -> str:
        """Return a notice before the first round."""
        if missing := super().nothing(shown):
            return missing
        return "" if self.items(shown) else "Drawn from the first round that measures a series."

    def noun(self) -> str:
        """Return the noun for the items."""
        return "series"

    def items(self, shown: Shown) -> Sequence[str]:
        """Return the names of the series, those of rows first and in their order."""
        view = self.view(shown)
        if view is None:
            return ()
        known = dict.fromkeys(name for point in view.history for name in point.values)
        keys = [row.key for row in view.table.rows if row.key in known]
        return list(dict.fromkeys((*keys, *known)))

    def lines(self, shown: Shown, width: int, items: Sequence[str]) -> list[Text]:
        """Return the rounds that fit, the newest last, and the series."""
        view = self.view(shown)
        if view is None:
            return []
        names = min(_KEYS[2 if width >= _WIDE else 1], max(_KEYS[0], *map(len, items), 6))
        room = max(1, (width - names - _TREND[0] - 2) // _VALUE)
        points = view.history[-room:]
        rounds = "".join(f"{f'r{point.round}':>{_VALUE}}" for point in points)
        lines = [Text(f"{'SERIES':<{names}}{rounds}  TREND", MUTED)]
        for name in items:
            line = Text(f"{cut(clean(name), names):<{names}}")
            for point in points:
                value = point.values.get(name)
                text = "·" if value is None else f"{value:.4g}"
                line.append(f"{cut(text, _VALUE - 1):>{_VALUE}}", MUTED if value is None else "")
            past = _past(view, name)
            lines.append(line.append(f"  {_curve(past, width - line.cell_len - 2)}", SKY))
        return lines


def _past(view: TableView, name: str) -> list[float]:
    return [point.values.get(name) or 0.0 for point in view.history]


def _curve(values: Sequence[float], room: int) -> str:
    return sparks(values[-room:]) if room > 0 else ""


def _top(column: Column, number: int, rows: Sequence[Row]) -> float:
    """Return the value at which a column's bar is full."""
    if column.show != "bar":
        return 1.0
    return max((_number(row.cells[number]) for row in rows), default=0.0)


def _number(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) else 0.0


def _layout(
    table: MethodTable, texts: Sequence[Sequence[str]], width: int, *, has_trend: bool
) -> TableLayout:
    head = table.head()
    key = max(len(head[0]), *(len(text[0]) for text in texts), 0) if texts else len(head[0])
    key = min(_KEYS[2 if width >= _WIDE else 1], max(_KEYS[0], key))
    columns = [
        min(_TEXT, max(len(head[place]), *(len(text[place]) for text in texts), 1))
        for place in range(1, len(head))
    ]
    shares, bars = share_places(table), _bars(table)
    room = width - key - sum(columns) - len(columns)
    if room < 0 and shares:
        columns = [0 if place in shares else cells for place, cells in enumerate(columns)]
        room = width - key - sum(columns) - len(columns) - 1
    trend = min(_TREND[1], room) if has_trend and room >= _TREND[0] else 0
    fits = bool(bars) and room - trend >= sum(bars.values())
    return TableLayout(key, tuple(columns), fits, trend)


def _bars(table: MethodTable) -> Mapping[int, int]:
    """Return the cells of the columns' bars; of several shares each has a shade."""
    shares = share_places(table)
    return {
        place: _SHADE if place in shares else _BAR
        for place, column in enumerate(table.columns)
        if column.show in ("bar", "share")
    }


def _head(table: MethodTable, layout: TableLayout) -> Text:
    key, *names = (clean(name).upper() for name in table.head())
    line, bars = Text(f"{cut(key, layout.key):<{layout.key}}", MUTED), _bars(table)
    shares = share_places(table)
    for place, (name, cells) in enumerate(zip(names, layout.columns, strict=True)):
        if not cells:
            if place == shares[0]:
                line.append(f" {_joined(table, shares)}")
            continue
        line.append(" " * bars.get(place, 0) if layout.bars else "")
        left = _is_text(table, place)
        line.append(f" {name:<{cells}}" if left else f" {name:>{cells}}")
    return line.append("  TREND") if layout.trend else line


def _joined(table: MethodTable, shares: Sequence[int]) -> str:
    """Return the heading of shares that have one block character each."""
    first, last = table.columns[shares[0]].name, table.columns[shares[-1]].name
    return f"{f'{clean(first)} to {clean(last)}':<{len(shares)}}"


def _is_text(table: MethodTable, place: int) -> bool:
    cells = [row.cells[place] for row in table.rows]
    return table.columns[place].show == "label" or any(isinstance(cell, str) for cell in cells)


def _row(
    view: TableView, row: Row, texts: Sequence[str], layout: TableLayout, tops: Sequence[float]
) -> Text:
    table = view.table
    line, bars, shares = (
        Text(f"{cut_middle(texts[0], layout.key):<{layout.key}}"),
        _bars(table),
        share_places(table),
    )
    for place, (cell, text, cells) in enumerate(
        zip(row.cells, texts[1:], layout.columns, strict=True)
    ):
        if not cells:
            if place == shares[0]:
                blocks = sparks([_number(row.cells[share]) for share in shares])
                line.append(f" {blocks:<{len(_joined(table, shares))}}", SKY)
            continue
        if layout.bars and place in bars:
            _add_bar(line, _number(cell), tops[place], shade=place in shares)
        shown = cut(text or ("·" if cell is None else ""), cells)
        left = _is_text(table, place)
        line.append(f" {shown:<{cells}}" if left else f" {shown:>{cells}}", _colour(cell))
    if layout.trend:
        line.append(f"  {_curve(_past(view, row.key), layout.trend - 2)}", SKY)
    return line


def _add_bar(line: Text, value: float, top: float, *, shade: bool) -> None:
    if shade:
        blocks = next((blocks for least, blocks in _SHADES if value >= least), "")
        line.append(f" {blocks:>{_SHADE - 1}}", SKY)
        return
    full, empty = bar(value / top if top > 0 else 0.0, _BAR - 1)
    line.append(" ").append(full, SKY).append(empty, RULE)


def _colour(cell: Cell) -> str:
    if isinstance(cell, str):
        return WORD_COLOURS.get(cell, "")
    return MUTED if cell is None else ""
