"""Tables that a run shows: the value, its events, and their fold with a history.

A method returns ``MethodTable`` values from ``Algorithm.view``; fleet and engine have their own.
The coordinator sends the rows that changed in ``table`` events, and every reader folds them with
``MethodTables``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from typing_extensions import Self

from edgefed.events.base.class_names import name_of
from edgefed.events.base.event_parts import event_parts
from edgefed.events.base.view import View
from edgefed.terminal.printable import printable

MAX_TABLES = 16
"""Tables of a method."""

MAX_OWN_TABLES = 4
"""Tables of fleet and engine."""

SYSTEM = "system."
"""How the names of the latter's series begin in a round's row: they do not measure the model."""

MAX_COLUMNS = MAX_SERIES = 128
"""Columns of a table, without the key; and its series."""

MAX_ROWS = 1024
"""Rows of a table that are sent, the first ones, unless it has a row for each device."""

MAX_CELLS = 8192
"""Cells of all such tables of a run that are sent, with the keys; and values of a history."""

MAX_DEVICE_CELLS = 1024 * 1024
"""Cells of all tables of a run that have a row for each device."""

MAX_POINTS = 120
"""Rounds of a history; beyond it, every second round of the older half is left out."""

MAX_NAME = 80
MAX_CELL = 256
MAX_VERDICT = 400
"""Characters of names and keys, of a cell, and of a verdict or warning; longer text is cut."""

DIGITS = 6
"""Significant digits of a number of lower precision than float64, which is kept as it is."""

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
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Real):
        number = float(value)
        return float(f"{number:.{DIGITS}g}") if math.isfinite(number) else None
    raise ValueError(f"a cell is text, a number or None, not {type(value).__name__}")


DEVICE, LABEL = "device", "label"
"""Headings of keys that have a meaning; see ``MethodTable``."""


def device_of(key: str) -> str:
    """Return the device that a key of a table of devices names."""
    return key.partition("/")[0]


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
            at 1 (``share``); or, for numbers of labels, by the run's class names (``label``).
    """

    name: Name
    unit: Annotated[str, _text(16)] = ""
    format: Annotated[str, Field(pattern=r"^(,?(\.\d)?[defg%])?$")] = ""
    show: Literal["value", "bar", "share", "label"] = "value"

    @property
    def heading(self) -> str:
        """The name, with the unit in brackets."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def text(self, value: Cell, classes: Sequence[str] = ()) -> str:
        """Return a cell as people read it, given the run's class names; nothing for None."""
        if value is None or isinstance(value, str):
            return value or ""
        if self.show == "label":
            return name_of(int(value), classes)
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
        rows: one for each key, in the order in which they are shown; those of devices are sorted.
        key: heading of the keys. ``device``: they are ids of devices, or begin with one and a
            slash. ``label``: numbers of labels. A table or column called ``device`` names the
            participants, so it is not shown where a recipe keeps cohorts secret.
        series: numbers of the state's round, by name; their history over the rounds is kept. Those
            named as a row belong to it.
        round: that the series are of; None for the state's.
        verdict: a sentence that summarises the table; may be empty.
        warning: what is wrong, for the operator's attention; empty if nothing is.

    Raises:
        ValueError: a row lacks a cell, a key occurs twice, or there are too many columns or series.
    """

    name: Name
    columns: Annotated[tuple[Column, ...], Field(max_length=MAX_COLUMNS)]
    rows: tuple[Row, ...] = ()
    key: Name = "name"
    series: Annotated[dict[Name, Number], Field(max_length=MAX_SERIES, default_factory=dict)]
    round: int | None = None
    verdict: Annotated[str, _text(MAX_VERDICT)] = ""
    warning: Annotated[str, _text(MAX_VERDICT)] = ""

    @property
    def of_devices(self) -> bool:
        """Whether the keys name devices."""
        return self.key == DEVICE

    @property
    def names_devices(self) -> bool:
        """Whether keys or a column name devices."""
        return self.of_devices or any(column.name == DEVICE for column in self.columns)

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

    def key_text(self, key: str, classes: Sequence[str] = ()) -> str:
        """Return a key as people read it, given the run's class names."""
        if self.key == LABEL and key.isdecimal():
            return name_of(int(key), classes)
        return device_of(key) if self.of_devices else key

    def texts(self, classes: Sequence[str] = ()) -> list[tuple[str, ...]]:
        """Return the rows as people read them, with the keys, given the run's class names."""
        return [
            (
                self.key_text(row.key, classes),
                *(c.text(cell, classes) for c, cell in zip(self.columns, row.cells, strict=True)),
            )
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
    round: int | None = None,  # noqa: A002 - as the field
    verdict: str = "",
    warning: str = "",
) -> MethodTable:
    """Return a table from rows of a key and its cells; see ``MethodTable``.

    Raises:
        ValueError: as ``MethodTable``.
    """
    made = tuple(Row(key=row_key, cells=tuple(cells)) for row_key, cells in rows)
    return MethodTable(
        name=name,
        columns=tuple(columns),
        rows=made,
        key=key,
        series=dict(series or {}),
        round=round,
        verdict=verdict,
        warning=warning,
    )


def within_limits(
    tables: Iterable[MethodTable], device_cells: int = MAX_DEVICE_CELLS
) -> list[TableView]:
    """Return tables with as many rows as may be sent, and how many of each are left out.

    Args:
        tables: of one source.
        device_cells: most cells of those that have a row for each device.

    Raises:
        ValueError: there are too many tables, or two of one name.
    """
    listed = list(tables)
    if len(listed) > MAX_TABLES or len({table.name for table in listed}) < len(listed):
        raise ValueError(f"a method has at most {MAX_TABLES} tables, each with its own name")
    views, room = [], {False: MAX_CELLS, True: device_cells}
    for table in listed:
        width, of_devices = len(table.columns) + 1, table.of_devices
        kept = table.rows[: min(_most_rows(of_devices), room[of_devices] // width)]
        room[of_devices] -= len(kept) * width
        shown = table.model_copy(update={"rows": kept})
        views.append(TableView(table=shown, left_out=len(table.rows) - len(kept)))
    return views


class OwnTable(Protocol):
    """A table of the engine or the fleet, which is made only when it is sent.

    Attributes:
        name: of the table.
        names_devices: as of ``MethodTable``.
    """

    name: str
    names_devices: bool

    def series(self) -> Mapping[str, float]:
        """Return the series of the table now; empty as long as there is no table."""
        ...

    def table(self) -> MethodTable | None:
        """Return the table now; None before there is anything to show."""
        ...


def _most_rows(of_devices: bool) -> int:
    return MAX_DEVICE_CELLS if of_devices else MAX_ROWS


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
        or not (table.of_devices or _in_order(old, new))
    )
    if anew:
        old, gone = {}, []
    changed = [("rows", [key, *row.cells]) for key, row in new.items() if old.get(key) != row]
    common = {
        **table.model_dump(mode="json", exclude={"rows", "round"}),
        "run": run,
        "round": number,
        "left_out": after.left_out,
    }
    rows = [("removed", key) for key in gone] + changed
    parts = event_parts(rows, ("rows", "removed"), len(json.dumps(common)))
    for place, part in enumerate(parts if rows else [{"rows": [], "removed": []}]):
        yield {**common, "anew": anew and not place, **part}


def _in_order(old: Mapping[str, Row], new: Mapping[str, Row]) -> bool:
    """Return whether the rows that stay come first, in their order."""
    kept = [key for key in old if key in new]
    return kept == list(new)[: len(kept)]


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
        table = MethodTable.model_validate({**fields, "rows": rows, "round": None})
        number, left_out = int(fields["round"]), int(fields["left_out"])
        view = TableView(table=table, round=number, left_out=left_out)
        removed = tuple(str(key) for key in fields["removed"])
        return cls(table.name, view, removed, bool(fields["anew"]))


class MethodTables:
    """The tables of the current run, with the history of their series.

    The cost of a change is proportional to its size.

    Args:
        views: before the first event.
    """

    def __init__(self, views: Iterable[TableView] = ()) -> None:
        self._whole: dict[str, TableView] = {view.table.name: view for view in views}
        """Views with all rows, of the tables that did not change since they were made."""
        self._views = dict(self._whole)
        self._rows = {name: _rows(view.table) for name, view in self._views.items()}
        self._of_devices: dict[str, dict[str, set[str]]] = {}
        for name, view in self._views.items():
            self._index(name, view.table.rows if view.table.of_devices else ())

    def apply(self, change: TableChange) -> set[str]:
        """Apply a change; one beyond the number of tables or rows is cut.

        Returns:
            The devices whose rows changed.
        """
        name, view = change.name, change.view
        before = self._views.get(name)
        self._whole.pop(name, None)
        if view is None:
            self._views.pop(name, None)
            self._rows.pop(name, None)
            return set(self._of_devices.pop(name, ()))
        if before is None and len(self._views) >= MAX_TABLES + MAX_OWN_TABLES:
            return set()
        same = before is not None and before.table.columns == view.table.columns
        changed = set[str]()
        if change.anew or not same:
            changed |= set(self._of_devices.pop(name, ()))
            self._rows[name] = {}
        changed |= self._apply_rows(change, view.table)
        history = before.history if before is not None else ()
        if view.table.series:
            point = Point(round=view.round, values=view.table.series)
            kept = tuple(earlier for earlier in history if earlier.round != view.round)
            history = _thinned((*kept, point), len(view.table.series))
        self._views[name] = view.model_copy(update={"history": history})
        return changed

    def _apply_rows(self, change: TableChange, table: MethodTable) -> set[str]:
        """Apply the rows of a change and return their devices."""
        rows, index = self._rows[change.name], self._of_devices.get(change.name, {})
        changed = set[str]()
        for key in change.removed:
            if rows.pop(key, None) is not None and device_of(key) in index:
                index[device_of(key)].discard(key)
                changed.add(device_of(key))
        most, taken = _most_rows(table.of_devices), []
        for row in table.rows:
            if row.key in rows or len(rows) < most:
                rows[row.key] = row
                taken.append(row)
        return changed | (self._index(change.name, taken) if table.of_devices else set())

    def _index(self, name: str, rows: Iterable[Row]) -> set[str]:
        """Note the keys of devices' rows and return the devices."""
        index, changed = self._of_devices.setdefault(name, {}), set[str]()
        for row in rows:
            device = device_of(row.key)
            index.setdefault(device, set()).add(row.key)
            changed.add(device)
        return changed

    def of_device(self, name: str, device: str) -> list[Row]:
        """Return a device's rows in the table of a name."""
        keys = self._of_devices.get(name, {}).get(device, ())
        return [self._rows[name][key] for key in keys]

    def view(self, name: str) -> TableView | None:
        """Return the table of a name, with all rows; None without it."""
        if name not in self._whole and name in self._views:
            view = self._views[name]
            rows = tuple(self._rows[name].values())
            if view.table.of_devices:
                rows = tuple(sorted(rows, key=_place))
            table = view.table.model_copy(update={"rows": rows})
            self._whole[name] = view.model_copy(update={"table": table})
        return self._whole.get(name)

    def head(self, name: str) -> TableView | None:
        """Return the table of a name with the rows of its last change only; None without it."""
        return self._views.get(name)

    def clear(self) -> None:
        """Forget all rows, because another run begins."""
        self._views, self._rows, self._whole, self._of_devices = {}, {}, {}, {}

    def views(self) -> tuple[TableView, ...]:
        """Return the run's tables, in the order in which they first appeared."""
        return tuple(view for name in self._views if (view := self.view(name)) is not None)


def table_named(views: Iterable[TableView], name: str) -> TableView | None:
    """Return the table of a name; None without it."""
    return next((view for view in views if view.table.name == name), None)


def numbers_in(
    views: Iterable[TableView], name: str, columns: Sequence[Column]
) -> dict[str, tuple[float, ...]]:
    """Return the cells of the table ``name`` by row key, without rows that lack a number.

    The result is empty if there is no such table, or if its columns differ from ``columns``.
    """
    view = table_named(views, name)
    rows = view.table.rows if view is not None and view.table.columns == tuple(columns) else ()
    cells = ((row.key, tuple(c for c in row.cells if isinstance(c, int | float))) for row in rows)
    return {key: numbers for key, numbers in cells if len(numbers) == len(columns)}


def _place(row: Row) -> tuple[str, int, str]:
    """Return what rows of devices are sorted by: the device, then numbers as such."""
    return device_of(row.key), len(row.key), row.key


def _rows(table: MethodTable) -> dict[str, Row]:
    return {row.key: row for row in table.rows}


def _thinned(points: tuple[Point, ...], series: int) -> tuple[Point, ...]:
    """Return points within their limit; the older half then has every second one."""
    limit = max(4, min(MAX_POINTS, MAX_CELLS // series))
    if len(points) <= limit:
        return points
    half = limit // 2
    return (*points[:half:2], *points[half:])
