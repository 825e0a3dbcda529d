"""The tables that a run shows: ``edgefed run tables``, ``expert show``, ``match show``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import Json, Local, RunOrFolder
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns, data, json_out, reported, talk

if TYPE_CHECKING:
    from edgefed.events.base.method_tables import TableView
    from edgefed.report.run_data import RunData

EPILOG = examples(
    "edgefed run tables",
    "edgefed run tables r-0001 --json",
    "edgefed run tables --local",
    "edgefed run tables PATH/TO/RUN/FOLDER",
)

MOST_ROUNDS = 10
"""Rounds that have a column each."""

MOST_SHARES = 10
"""Shares that have a column each; of more, a row names the largest."""

MOST_NAMED = 4
"""Shares that such a row names."""

Svg = Annotated[
    Path | None,
    typer.Option("--svg", help="Draw the tables and their course into this file.", metavar="FILE"),
]

expert = CommandLine(help="Show a run's mixture of experts.")
match = CommandLine(help="Show the matched layers of a run.")


@expert.callback()
def expert_group() -> None:
    """Show a run's mixture of experts."""


@match.callback()
def match_group() -> None:
    """Show the matched layers of a run."""


def tables(
    context: typer.Context,
    run: RunOrFolder = "",
    *,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """Show the tables of a run, and their series by round.

    The method's tables are first: plug-ins bring their own. Every run then has two: the answers and
    samples of each device, and the seconds of a round's phases.
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.runs.report import run_data_of

        run_data = run_data_of(options, run, local, "edgefed run tables")
        views = run_data.summary.tables
        name = str(run_data.record["run"])
        if as_json:
            json_out({"run": name, "tables": [table_json(view) for view in views]})
        elif views:
            data(tables_text(run_data, views))
        else:
            talk(f"Run {name} shows no tables.")


@expert.command(
    "show",
    epilog=examples(
        "edgefed expert show",
        "edgefed expert show r-0001 --svg experts.svg",
        "edgefed expert show --local --json",
        "edgefed expert show PATH/TO/RUN/FOLDER",
    ),
)
def show_experts(
    context: typer.Context,
    run: RunOrFolder = "",
    *,
    svg: Svg = None,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """Show the load of each expert, q(z|y) of each label, and q(z|s) of each device.

    An expert is dead if its load is below a hundredth of an equal share. A run has collapsed if one
    expert has more than 99 % of the load.
    """
    from edgefed.events.methods import expert_tables

    names = (expert_tables.EXPERTS, expert_tables.SHARES, expert_tables.MIXTURES)

    def values(run_data: RunData) -> dict[str, Any]:
        from edgefed.events.base.method_tables import table_named
        from edgefed.report.tables import class_names_of

        shares = table_named(run_data.summary.tables, expert_tables.SHARES)
        table, classes = shares.table if shares is not None else None, class_names_of(run_data)
        keys = [row.key for row in table.rows] if table is not None else []
        named = {key: table.key_text(key, classes) for key in keys if table is not None}
        return expert_tables.experts_json(run_data.summary.tables, named)

    _put(context, (run, local, as_json), svg, "experts", names, values)


@match.command(
    "show",
    epilog=examples(
        "edgefed match show",
        "edgefed match show r-0001 --svg widths.svg",
        "edgefed match show --local --json",
        "edgefed match show PATH/TO/RUN/FOLDER",
    ),
)
def show_layers(
    context: typer.Context,
    run: RunOrFolder = "",
    *,
    svg: Svg = None,
    local: Local = False,
    as_json: Json = False,
) -> None:
    """Show the width that matching found for each layer, now and by round.

    An atom is a unit of the global model; growth is the number of atoms divided by the units on a
    device, and for the whole model the same of parameters. The objective is the log-posterior of
    the matching, up to a constant.
    """
    from edgefed.events.methods.matching_table import LAYERS, matching_json

    def values(run_data: RunData) -> dict[str, Any]:
        from edgefed.events.base.method_tables import table_named

        view = table_named(run_data.summary.tables, LAYERS)
        if view is None:
            return {"layers": []}
        growth = {row["round"]: row["growth"] for row in run_data.rounds if row.get("growth")}
        return matching_json(view, growth)

    _put(context, (run, local, as_json), svg, "matching", (LAYERS,), values)


_MISSING = {"experts": "has no experts", "matching": "matches no layers"}
_COMMANDS = {"experts": "edgefed expert show", "matching": "edgefed match show"}
_TITLES = {"experts": "Experts", "matching": "Matched layers"}


def _put(
    context: typer.Context,
    options: tuple[str, bool, bool],
    svg: Path | None,
    part: str,
    names: Sequence[str],
    values: Callable[[RunData], dict[str, Any]],
) -> None:
    """Print some tables of a run as text or JSON, or draw them and print the file's path."""
    run, local, as_json = options
    settings = globals_of(context)
    as_json = as_json or settings.json
    with reported(as_json):
        from edgefed.cli.runs.report import run_data_of
        from edgefed.errors import UsageError
        from edgefed.files.writing import write_output
        from edgefed.report.tables import tables_picture

        run_data = run_data_of(settings, run, local, _COMMANDS[part])
        views = [view for view in run_data.summary.tables if view.table.name in names]
        name, algorithm = run_data.record["run"], run_data.record.get("algorithm", "")
        missing = f"Run {name} {_MISSING[part]}: its algorithm is {algorithm}."
        drawn: dict[str, str] = {}
        if svg is not None:
            if not views:
                if part == "experts":
                    raise UsageError(missing, code="experts.none", hint="omit --svg")
                raise UsageError(missing, code="matching.none", hint="omit --svg")
            file = svg.expanduser().absolute()
            picture = tables_picture(run_data, names, f"{_TITLES[part]} of run {name}")
            write_output(file, picture.encode())
            drawn["file"] = str(file)
        if as_json:
            json_out({"run": name, **values(run_data), **drawn})
        elif drawn:
            data(drawn["file"])
        elif views:
            data(f"{name}\n\n{tables_text(run_data, views)}")
        else:
            talk(missing)


def table_json(view: TableView) -> dict[str, Any]:
    """Return a table as JSON: each row has its key and its cells."""
    return {
        **view.table.model_dump(mode="json", exclude={"round"}),
        **view.model_dump(mode="json", exclude={"table"}),
    }


def tables_text(run_data: RunData, views: Sequence[TableView]) -> str:
    """Return tables of a run as text, below each other."""
    from edgefed.report.tables import class_names_of

    classes = class_names_of(run_data)
    return "\n\n".join(table_text(view, classes) for view in views)


def table_text(view: TableView, classes: Sequence[str] = ()) -> str:
    """Return a table as text: name, verdict, rows, and the series of some rounds."""
    from edgefed.events.base.thinned import evenly_spaced
    from edgefed.report.tables import rows_left_out

    table = view.table
    parts = [", ".join(filter(None, (table.name, f"round {view.round}", table.verdict)))]
    if table.warning:
        parts[0] += f"\n! {table.warning}"
    if table.rows:
        parts.append(columns(_rows_text(view, classes)))
    parts += filter(None, (rows_left_out(view),))
    points = evenly_spaced(view.history, MOST_ROUNDS)
    names = dict.fromkeys(name for point in points for name in point.values)
    if names:
        rows = [("SERIES", *(f"ROUND {point.round}" for point in points))]
        for name in names:
            values = (point.values.get(name) for point in points)
            rows.append((name, *("" if value is None else f"{value:.4g}" for value in values)))
        parts.append(columns(rows))
        if len(points) < len(view.history):
            parts.append(f"{len(points)} of {len(view.history)} rounds are shown.")
    return "\n\n".join(parts)


def _rows_text(view: TableView, classes: Sequence[str]) -> list[tuple[str, ...]]:
    """Return head and rows; of many shares, only the largest, by name."""
    from edgefed.events.methods.share_courses import share_places

    table = view.table
    head, texts = tuple(word.upper() for word in table.head()), table.texts(classes)
    places = share_places(table)
    if len(places) <= MOST_SHARES:
        return [head, *texts]
    first, last = places[0] + 1, places[-1] + 2  # the key is before all cells
    rows = [(*head[:first], "SHARES", *head[last:])]
    for row, text in zip(table.rows, texts, strict=True):
        order = sorted(places, key=lambda place: -float(row.cells[place] or 0))
        largest = (f"{table.columns[place].name} {text[place + 1]}" for place in order[:MOST_NAMED])
        rows.append((*text[:first], " ".join(largest), *text[last:]))
    return rows
