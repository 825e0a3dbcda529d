"""``edgefed match``: the layers of a run with matched averaging, and the widths found for them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import Json, Local, RunOrFolder
from edgefed.command_line import CommandLine
from edgefed.console import reported

app = CommandLine(help="Show the matched layers of a run.")


@app.callback()
def match() -> None:
    """Show the matched layers of a run."""


@app.command(
    epilog=examples(
        "edgefed match show",
        "edgefed match show r-0001 --svg widths.svg",
        "edgefed match show --local --json",
        "edgefed match show PATH/TO/RUN/FOLDER",
    )
)
def show(
    context: typer.Context,
    run: RunOrFolder = "",
    *,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", help="Draw the widths over the rounds into this file.",
                     metavar="FILE"),
    ] = None,
    local: Local = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show the width that matching found for each layer, now and by round.

    An atom is a unit of the global model; growth is the number of atoms divided by the units on a
    device, and for the whole model the same of parameters. The objective is the log-posterior of
    the matching, up to a constant.
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.match_output import matching_part
        from edgefed.cli.report import run_data_of
        from edgefed.cli.run_part import put_part

        run_data = run_data_of(options, run, local, "edgefed match show")
        put_part(matching_part(run_data), svg, as_json)
