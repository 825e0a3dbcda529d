"""The tables of an advice in the report and the dashboard: candidates, and reached values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from pathlib import Path
from typing import Any

from edgefed.advise.checks import Compared, check_followed, compare, read_advice
from edgefed.errors import UnknownNameError, UsageError
from edgefed.events.base.method_tables import Column, MethodTable, method_table
from edgefed.terminal.units import counted

NAME = "advice"

_COLUMNS = (
    Column(name="accuracy", format=".3f", show="bar"),
    Column(name="±", format=".3f"),
    Column(name="rounds", format="d"),
    Column(name="bytes of a device", unit="MB", format=".3g"),
    Column(name="time", unit="s", format=",d"),
    Column(name="energy", unit="J", format=",d"),
    Column(name="ε", format=".3g"),
    Column(name="leaves a device"),
)


def advice_table(advice: Mapping[str, Any]) -> MethodTable:
    """Return the candidates of an advice, as ``advice.json`` has it; the verdict recommends one.

    Traffic and energy are those of one device. Columns without any value are left out.
    """
    rows = [
        (
            row["candidate"],
            (
                row["accuracy"]["mean"],
                row["accuracy"]["margin"],
                row["rounds"],
                None if row["bytes"] is None else row["bytes"] / 1e6,
                row["seconds"],
                row.get("joules"),
                row["epsilon"],
                row["leaves"] if not row["reason"] else f"failed: {row['reason']}",
            ),
        )
        for row in advice["rows"]
    ]
    rounds = counted(advice["rounds"], "round")
    verdict = f"Recommended for {rounds}: {advice['recommended']}, {advice['reason']}"
    known = [any(cells[place] is not None for _, cells in rows) for place in range(len(_COLUMNS))]
    shown = [(name, list(compress(cells, known))) for name, cells in rows]
    columns = list(compress(_COLUMNS, known))
    return method_table(NAME, columns, shown, key="candidate", verdict=verdict)


def comparison_table(compared: Iterable[Compared]) -> MethodTable:
    """Return the predicted and the reached values of a run."""
    columns = tuple(
        Column(name=name, format=form)
        for name, form in (("predicted", ".4g"), ("reached", ".4g"), ("difference", ".1%"))
    )
    rows = [(value.name, (value.predicted, value.reached, value.error)) for value in compared]
    return method_table(f"{NAME}, predicted and reached", columns, rows)


def run_tables(folder: Path, record: Mapping[str, Any], devices: int) -> Iterator[MethodTable]:
    """Yield the tables of the advice in a folder that a run followed; none if it followed none.

    Args:
        folder: of the advice.
        record: of the run, as ``run show --json`` prints it.
        devices: of the fleet.
    """
    try:
        advice = read_advice(folder)
        check_followed(folder, record)
    except (UnknownNameError, UsageError):
        return
    yield advice_table(advice)
    if record.get("status") == "finished":
        yield comparison_table(compare(advice, record, devices))
