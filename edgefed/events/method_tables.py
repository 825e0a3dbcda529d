"""Tables that a method shows: the value, its events, and their fold with a history.

A method returns ``MethodTable`` values from ``Algorithm.view``. The coordinator sends the rows that
changed in ``table`` events, and every reader folds them with ``MethodTables``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self

from edgefed.events.event_parts import event_parts
from edgefed.events.view import View
from edgefed.printable import printable

MAX_TABLES = 16
"""Tables of a run."""

MAX_COLUMNS = 32
"""Columns of a table, without the key."""

MAX_ROWS = 1024
"""Rows of a table that are sent; the first ones."""

MAX_CELLS = 8192
"""Cells of all tables of a run that are sent, with the keys; and values of a table's history."""

MAX_SERIES = 64
"""Series of a table."""

MAX_POINTS = 120
"""Rounds of a history; beyond it, every second round of the older half is left out."""

MAX_NAME = 80
MAX_CELL = 120
MAX_VERDICT = 400
"""Characters of names and keys, of a cell, and of a verdict; longer text is cut."""

DIGITS = 6
"""Significant digits of a number in a table."""

Cell = str | int | float | None
"""Text, a number, or None for a value that is not known or not finite."""


def _text(limit: int) -> AfterValidator:
    return AfterValidator(lambda text: printable(text)[:limit])


def _cell(value: Any) -> Any:
    """Return a cell as JSON holds it; anything but text and numbers is left for validation."""
    if value is None:
        return None
    if isinstance(value, str):
        return printable(value)[:MAX_CELL]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return float(f"{number:.{DIGITS}g}") if math.isfinite(number) else None
    raise ValueError(f"a cell is text, a number or None, not {type(value).__name__}")


Name = Annotated[str, Field(min_length=1), _text(MAX_NAME)]
Value = Annotated[Cell, BeforeValidator(_cell)]
Number = Annotated[float | None, BeforeValidator(_cell)]


class Column(View):
    """A column of a table.

    Attributes:
        name: its heading.
        unit: of its numbers, such as ``s``; shown in the heading.
        format: how numbers are written, as in Python's format strings: ``.3f``, ``d``, ``.1%``.
        show: ``value``; or also as a bar that is full at the column's largest value (``bar``) or
            at 1 (``share``).
    """

    name: Name
    unit: Annotated[str, _text(16)] = ""
    format: Annotated[str, Field(pattern=r"^(,?(\.\d)?[defg%])?$")] = ""
    show: Literal["value", "bar", "share"] = "value"

    @property
    def heading(self) -> str:
        """The name, with the unit in brackets."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def text(self, value: Cell) -> str:
        """Return a cell as people read it; nothing for None."""
        if value is None or isinstance(value, str):
            return value or ""
        if self.format.endswith("d"):
            value = round(value)
        return format(value, self.format or (".4g" if isinstance(value, float) else ""))


class Row(View):
    """A row: its key, which no other row of the table has, and a cell for each column."""

    key: Name
    cells: tuple[Value, ...]


class MethodTable(View):
    """A table that a method shows of its state. Text is made printable and cut.

    Attributes:
        name: unique among the tables of the method.
        columns: the columns, without the key.
        rows: one for each key, in the order in which they are shown.
        key: heading of the keys.
        series: numbers of the state's round, by name; their history over the rounds is kept.
        verdict: a sentence that summarises the table; may be empty.

    Raises:
        ValueError: a row lacks a cell, a key occurs twice, or there are too many columns or series.
    """

    name: Name
    columns: Annotated[tuple[Column, ...], Field(max_length=MAX_COLUMNS)]
    rows: tuple[Row, ...] = ()
    key: Name = "name"
    series: Annotated[dict[Name, Number], Field(max_length=MAX_SERIES, default_factory=dict)]
    verdict: Annotated[str, _text(MAX_VERDICT)] = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if any(len(row.cells) != len(self.columns) for row in self.rows):
            raise ValueError(f"a row of table {self.name} needs {len(self.columns)} cells")
        if len({row.key for row in self.rows}) < len(self.rows):
            raise ValueError(f"a key occurs twice in table {self.name}")
        return self

    def head(self) -> tuple[str, ...]:
        """Return the headings, with that of the keys."""
        return (self.key, *(column.heading for column in self.columns))

    def texts(self) -> list[tuple[str, ...]]:
        """Return the rows as people read them, with the keys."""
        return [
            (row.key, *(col.text(cell) for col, cell in zip(self.columns, row.cells, strict=True)))
            for row in self.rows
        ]


class Point(View):
    """The values of a table's series after a round, by name."""

    round: int
    values: dict[Name, Number]


class TableView(View):
    """A table as readers have it.

    Attributes:
        table: after the last change.
        round: of the last change.
        left_out: rows beyond the limits.
        history: of the series, oldest round first.
    """

    table: MethodTable
    round: int = 0
    left_out: int = 0
    history: tuple[Point, ...] = ()


def method_table(
    name: str,
    columns: Sequence[Column],
    rows: Iterable[tuple[str, Sequence[Any]]],
    *,
    key: str = "name",
    series: Mapping[str, Any] | None = None,
    verdict: str = "",
) -> MethodTable:
    """Return a table from rows of a key and its cells; see ``MethodTable``.

    Raises:
        ValueError: as ``MethodTable``.
    """
    made = tuple(Row(key=each, cells=tuple(cells)) for each, cells in rows)
    return MethodTable(
        name=name,
        columns=tuple(columns),
        rows=made,
        key=key,
        series=dict(series or {}),
        verdict=verdict,
    )


def within_limits(tables: Iterable[MethodTable]) -> list[TableView]:
    """Return tables with as many rows as may be sent, and how many of each are left out.

    Raises:
        ValueError: there are too many tables, or two of one name.
    """
    listed = list(tables)
    if len(listed) > MAX_TABLES or len({each.name for each in listed}) < len(listed):
        raise ValueError(f"a method has at most {MAX_TABLES} tables, each with its own name")
    views, cells = [], MAX_CELLS
    for table in listed:
        kept = table.rows[: min(MAX_ROWS, cells // (len(table.columns) + 1))]
        cells -= len(kept) * (len(table.columns) + 1)
        shown = table.model_copy(update={"rows": kept})
        views.append(TableView(table=shown, left_out=len(table.rows) - len(kept)))
    return views


def table_events(
    run: str, number: int, before: TableView | None, after: TableView
) -> Iterator[dict[str, Any]]:
    """Yield the fields of ``table`` events that turn one table into another of its name.

    Args:
        run: the run's id.
        number: the round.
        before: as readers have it; None if they have none.
        after: as they are to have it.
    """
    table = after.table
    old = _rows(before.table) if before is not None else {}
    new = _rows(table)
    gone = [key for key in old if key not in new]
    anew = (
        before is None
        or before.table.columns != table.columns
        or [key for key in old if key in new] != list(new)[: len(old) - len(gone)]
    )
    if anew:
        old, gone = {}, []
    changed = [("rows", [key, *cells]) for key, cells in new.items() if old.get(key) != cells]
    common = {
        **table.model_dump(mode="json", exclude={"rows"}),
        "run": run,
        "round": number,
        "left_out": after.left_out,
    }
    rows = [("removed", key) for key in gone] + changed
    parts = event_parts(rows, ("rows", "removed"), len(json.dumps(common)))
    for place, part in enumerate(parts if rows else [{"rows": [], "removed": []}]):
        yield {**common, "anew": anew and not place, **part}


def removal(run: str, number: int, name: str) -> dict[str, Any]:
    """Return the fields of a ``table`` event: the run no longer has the table of this name."""
    return {"run": run, "round": number, "name": name, "gone": True}


@dataclass(frozen=True)
class TableChange:
    """The change in a ``table`` event.

    Attributes:
        name: of the table.
        view: the table with the changed rows only; None if it is gone.
        removed: keys of rows that are gone.
        anew: whether readers drop the rows that they have.
    """

    name: str
    view: TableView | None
    removed: tuple[str, ...] = ()
    anew: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> TableChange:
        """Return the change in an event's fields.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or wrong.
        """
        if fields.get("gone"):
            return cls(str(fields["name"]), None)
        rows = [{"key": key, "cells": cells} for key, *cells in fields["rows"]]
        table = MethodTable.model_validate({**fields, "rows": rows})
        number, left_out = int(fields["round"]), int(fields["left_out"])
        view = TableView(table=table, round=number, left_out=left_out)
        removed = tuple(str(key) for key in fields["removed"])
        return cls(table.name, view, removed, bool(fields["anew"]))


class MethodTables:
    """The tables of the current run, with the history of their series.

    Args:
        views: before the first event.
    """

    def __init__(self, views: Iterable[TableView] = ()) -> None:
        self._views = {view.table.name: view for view in views}
        self._cells = {name: _rows(view.table) for name, view in self._views.items()}

    def apply(self, change: TableChange) -> None:
        """Apply a change; one beyond the number of tables or rows is cut."""
        before, view = self._views.get(change.name), change.view
        if view is None:
            self._views.pop(change.name, None)
            self._cells.pop(change.name, None)
            return
        if before is None and len(self._views) >= MAX_TABLES:
            return
        same = before is not None and before.table.columns == view.table.columns
        cells = {} if change.anew or not same else self._cells[change.name]
        for key in change.removed:
            cells.pop(key, None)
        for row in view.table.rows:
            if row.key in cells or len(cells) < MAX_ROWS:
                cells[row.key] = row.cells
        history = before.history if before is not None else ()
        if view.table.series:
            point = Point(round=view.round, values=view.table.series)
            kept = tuple(each for each in history if each.round != view.round)
            history = _thinned((*kept, point), len(view.table.series))
        self._cells[change.name] = cells
        self._views[change.name] = view.model_copy(update={"history": history})

    def clear(self) -> None:
        """Forget all rows, because another run begins."""
        self._views, self._cells = {}, {}

    def views(self) -> tuple[TableView, ...]:
        """Return the run's tables, in the order in which they first appeared."""
        return tuple(
            view.model_copy(update={"table": _with_rows(view.table, self._cells[name])})
            for name, view in self._views.items()
        )


def _rows(table: MethodTable) -> dict[str, tuple[Cell, ...]]:
    return {row.key: row.cells for row in table.rows}


def _with_rows(table: MethodTable, cells: Mapping[str, tuple[Cell, ...]]) -> MethodTable:
    rows = tuple(Row.model_construct(key=key, cells=row) for key, row in cells.items())
    return table.model_copy(update={"rows": rows})


def _thinned(points: tuple[Point, ...], series: int) -> tuple[Point, ...]:
    """Return points within their limit; the older half then has every second one."""
    limit = max(4, min(MAX_POINTS, MAX_CELLS // series))
    if len(points) <= limit:
        return points
    half = limit // 2
    return (*points[:half:2], *points[half:])
