"""A part of a table: some of its rows and columns; the output names the omitted ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.errors import UnknownNameError
from edgefed.reproduce.table import PaperRow, Scaled

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
    kept_rows = [each for each in labels if _wanted(rows, each)]
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
    folded = [each.lower() for each in chosen]
    return not chosen or any(name.lower() in folded for name in names)


def _check(kind: str, chosen: Sequence[str], known: Iterable[str]) -> None:
    names = list(dict.fromkeys(known))
    for name in chosen:
        if not any(_wanted([name], each) for each in names):
            meant = did_you_mean(nearest_name(name, names)) or "."
            raise UnknownNameError(
                f"The table has no {kind} '{name}' at this scale{meant}",
                code="reproduce.part",
                hint=f"choose from: {', '.join(names)}",
            )
