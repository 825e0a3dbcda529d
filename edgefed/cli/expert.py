"""``edgefed expert``: the experts of a run, and which device uses which of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import Json, Local, RunOrFolder
from edgefed.command_line import CommandLine
from edgefed.console import reported

app = CommandLine(help="Show a run's mixture of experts.")


@app.callback()
def expert() -> None:
    """Show a run's mixture of experts."""


@app.command(
    epilog=examples(
        "edgefed expert show",
        "edgefed expert show r-0001 --svg experts.svg",
        "edgefed expert show --local --json",
        "edgefed expert show PATH/TO/RUN/FOLDER",
    )
)
def show(
    context: typer.Context,
    run: RunOrFolder = "",
    *,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", help="Draw tables, mixtures and load into this file.",
                     metavar="FILE"),
    ] = None,
    local: Local = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show the load of each expert, q(z|y) of each label, and q(z|s) of each device.

    An expert is dead if its load is below a hundredth of an equal share. A run has collapsed if one
    expert has more than 99 % of the load.
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.expert_output import experts_part
        from edgefed.cli.report import run_data_of
        from edgefed.cli.run_part import put_part

        run_data = run_data_of(options, run, local, "edgefed expert show")
        put_part(experts_part(run_data), svg, as_json)
