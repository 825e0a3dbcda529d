"""Plan the runs of a table at a scale, or of some of its rows and columns.

All recipes are checked before the first run; the output names the omitted rows and columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgefed.algorithms.composed.registry import algorithms
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.load import load_recipe
from edgefed.config.values.layers import ValueLayer
from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.errors import DataError, MissingDataError, UnknownNameError
from edgefed.reproduce.sources import Located, fetch, locate
from edgefed.reproduce.table import PaperColumn, PaperRow, PaperTable, Scale, Scaled, Settings
from edgefed.simulator.sweep.plan import Check, Plan, SweepCase
from edgefed.simulator.sweep.report import default_report

LEFT_OUT = "not asked for"


def part_of(
    scaled: Scaled, table_rows: Sequence[PaperRow], rows: Sequence[str], columns: Sequence[str]
) -> Scaled:
    """Return the table at this scale with the named rows and columns only.

    Args:
        scaled: the whole.
        table_rows: the table's.
        rows: labels, in any case of letters; none for all.
        columns: labels, or the paper's columns; none for all.

    Raises:
        UnknownNameError: there is no such row or column.
    """
    labels = [row.label for row in table_rows if row.label not in scaled.left_out]
    _check("row", rows, labels)
    _check("column", columns, [name for c in scaled.columns for name in (c.label, c.of)])
    kept_rows = [label for label in labels if _wanted(rows, label)]
    kept = tuple(c for c in scaled.columns if _wanted(columns, c.label, c.of))
    absent = [label for label in labels if label not in kept_rows]
    absent += [column.label for column in scaled.columns if column not in kept]
    left_out = {**scaled.left_out, **dict.fromkeys(absent, LEFT_OUT)}
    return replace(scaled, columns=kept, left_out=left_out)


def without(scaled: Scaled, reasons: Mapping[str, str]) -> Scaled:
    """Return the table without some columns, by their labels, and why they are left out."""
    kept = tuple(column for column in scaled.columns if column.label not in reasons)
    return replace(scaled, columns=kept, left_out={**scaled.left_out, **reasons})


def _wanted(chosen: Sequence[str], *names: str) -> bool:
    folded = [name.lower() for name in chosen]
    return not chosen or any(name.lower() in folded for name in names)


def _check(kind: str, chosen: Sequence[str], known: Iterable[str]) -> None:
    names = list(dict.fromkeys(known))
    for name in chosen:
        if not any(_wanted([name], known_name) for known_name in names):
            meant = did_you_mean(nearest_name(name, names)) or "."
            raise UnknownNameError(
                f"The table has no {kind} '{name}' at this scale{meant}",
                code="reproduce.part",
                hint=f"choose from: {', '.join(names)}",
            )


@dataclass(frozen=True)
class Cell:
    """A row in a column, with its recipe."""

    row: PaperRow
    column: PaperColumn
    case: SweepCase


@dataclass(frozen=True)
class Study:
    """A table at a scale, ready to be run.

    Attributes:
        scaled: the table at the scale, or the part of it that is run.
        cells: those that are run, column by column.
        missing: rows that this version cannot run, with the missing part.
        notes: about the data.
    """

    table: PaperTable
    scale: Scale
    scaled: Scaled
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    missing: Mapping[str, str]
    notes: tuple[str, ...]

    def plan(self, column: PaperColumn | None = None) -> Plan:
        """Return the runs as a sweep: all of them, or a column's with its target."""
        chosen = [cell for cell in self.cells if column is None or cell.column is column]
        target = None if column is None else column.target
        return Plan(tuple(cell.case for cell in chosen), self.seeds, default_report(target))


def make_study(
    table: PaperTable,
    scale: Scale,
    check: Check,
    *,
    seeds: Sequence[int] = (),
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    data: Path | None = None,
    scratch: Path,
) -> Study:
    """Return the study of a table at a scale.

    Settings files and ``EDGEFED_`` variables have no effect: the recipes are the table's.

    Args:
        table: to run.
        scale: of its set-ups.
        check: checks each recipe to the last key.
        seeds: in place of the table's.
        rows: the only ones, by their labels; none for all.
        columns: likewise, or the paper's.
        data: the folder with the data; None to download it.
        scratch: folder for generated data.

    Raises:
        DataError: the data is missing, or that of all columns.
        RecipeError: a recipe is wrong.
        UnknownNameError: there is no such row or column.
    """
    scaled = part_of(table.scales[scale], table.rows, rows, columns)
    cells: list[Cell] = []
    missing: dict[str, str] = {}
    notes: dict[str, None] = {}
    places, absent = _located(scaled, data, scratch)
    scaled = without(scaled, absent)
    for column in scaled.columns:
        located = places[column.label]
        notes |= {located.note: None} if located.note else {}
        for row in table.rows:
            if row.label in scaled.left_out:
                continue
            own = {**row.settings, **column.rows.get(row.label, {})}
            lacking = _lacking({**located.settings, **own})
            if lacking:
                missing[row.label] = lacking
                continue
            cells.append(Cell(row, column, _case(table, row, column, located, own, check)))
    chosen = tuple(dict.fromkeys(seeds)) or scaled.seeds
    return Study(table, scale, scaled, tuple(cells), chosen, missing, tuple(notes))


def _located(
    scaled: Scaled, data: Path | None, scratch: Path
) -> tuple[Mapping[str, Located], Mapping[str, str]]:
    """Return the data of each column by its label, and why that of optional ones is not there.

    Raises:
        DataError: that of a column that is not optional, or of all columns.
    """
    places: dict[str, Located] = {}
    absent: dict[str, MissingDataError] = {}
    for column in scaled.columns:
        try:
            places[column.label] = locate({**column.setup, **column.varies}, data, scratch)
        except MissingDataError as error:
            if not column.optional:
                raise
            absent[column.label] = error
    if absent and not places:
        raise next(iter(absent.values()))
    return places, {label: error.message for label, error in absent.items()}


def fetched(study: Study, folder: Path) -> Study:
    """Download the data of a study that is not there yet; optional columns without it are dropped.

    Raises:
        DataError: the data of a column that is not optional, or of all columns.
    """
    absent: dict[str, DataError] = {}
    columns = {cell.column.label: cell for cell in study.cells}
    for label, cell in columns.items():
        try:
            fetch(cell.case.recipe.data, folder)
        except DataError as error:
            if not cell.column.optional:
                raise
            absent[label] = error
    if absent and len(absent) == len(columns):
        raise next(iter(absent.values()))
    reasons = {label: error.message for label, error in absent.items()}
    kept = tuple(cell for cell in study.cells if cell.column.label not in absent)
    return replace(study, scaled=without(study.scaled, reasons), cells=kept)


def _lacking(settings: Settings) -> str:
    """Return what a row needs that this version does not have; nothing if it has all."""
    name = str(settings["algorithm.name"])
    kind = algorithms().get(name)
    if kind is None:
        return f"there is no algorithm '{name}'"
    keys = (key.removeprefix("algorithm.") for key in settings if key.startswith("algorithm."))
    unknown = [key for key in keys if key != "name" and key not in kind.Settings.model_fields]
    return f"{name} has no setting '{unknown[0]}'" if unknown else ""


def _case(
    table: PaperTable,
    row: PaperRow,
    column: PaperColumn,
    located: Located,
    own: Settings,
    check: Check,
) -> SweepCase:
    values = nested({"name": table.name, **located.settings, **own})
    loaded = load_recipe(ValueLayer(values), Surroundings({}, Path.cwd(), no_config=True))
    return SweepCase(f"{column.label} / {row.label}", {**column.varies, **own}, check(loaded))


def nested(settings: Settings) -> dict[str, Any]:
    """Return dotted keys as nested tables."""
    values: dict[str, Any] = {}
    for key, value in settings.items():
        table = values
        *path, last = key.split(".")
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return values
