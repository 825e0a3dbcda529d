"""``edgefed run tables``: the tables that a run's method shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import Json, Local, RunOrFolder
from edgefed.console import columns, data, json_out, reported, talk

if TYPE_CHECKING:
    from edgefed.events.method_tables import TableView

EPILOG = examples(
    "edgefed run tables",
    "edgefed run tables r-0001 --json",
    "edgefed run tables --local",
    "edgefed run tables PATH/TO/RUN/FOLDER",
)

MOST_ROUNDS = 10
"""Rounds that have a column each."""


def tables(
    context: typer.Context,
    run: RunOrFolder = "",
    *,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """Show the tables of a run's method, and their series by round.

    Which tables there are depends on the method: plug-ins bring their own.
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.report import run_data_of

        run_data = run_data_of(options, run, local, "edgefed run tables")
        found = run_data.summary.tables
        name = str(run_data.record["run"])
        if as_json:
            json_out({"run": name, "tables": [table_json(view) for view in found]})
        elif found:
            data("\n\n".join(table_text(view) for view in found))
        else:
            talk(f"The method of run {name} shows no tables.")


def table_json(view: TableView) -> dict[str, Any]:
    """Return a table as JSON: each row has its key and its cells."""
    return {
        **view.table.model_dump(mode="json"),
        **view.model_dump(mode="json", exclude={"table"}),
    }


def table_text(view: TableView) -> str:
    """Return a table as text: name, verdict, rows, and the series of some rounds."""
    from edgefed.events.thinned import evenly_spaced
    from edgefed.report.tables import rows_left_out

    table = view.table
    head = ", ".join(filter(None, (table.name, f"round {view.round}", table.verdict)))
    parts = [head]
    if table.rows:
        parts.append(columns([tuple(word.upper() for word in table.head()), *table.texts()]))
    parts += filter(None, (rows_left_out(view),))
    points = evenly_spaced(view.history, MOST_ROUNDS)
    names = dict.fromkeys(name for point in points for name in point.values)
    if names:
        rows = [("SERIES", *(f"ROUND {point.round}" for point in points))]
        for name in names:
            values = (point.values.get(name) for point in points)
            rows.append((name, *("" if value is None else f"{value:.4g}" for value in values)))
        parts.append(columns(rows))
    return "\n\n".join(parts)
