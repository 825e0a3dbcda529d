"""``edgefed expert``: the experts of a run, and which device uses which of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import Json, Local, RunOrFolder
from edgefed.command_line import CommandLine
from edgefed.console import data, json_out, reported, talk

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
        from edgefed.cli.expert_output import experts_json, experts_text, why_none
        from edgefed.cli.report import run_data_of
        from edgefed.errors import UsageError
        from edgefed.files import write_atomic
        from edgefed.report.experts import experts_picture

        run_data = run_data_of(options, run, local, "edgefed expert show")
        history = run_data.summary.experts
        file = svg.expanduser().absolute() if svg is not None else None
        if file is not None:
            if history is None:
                raise UsageError(why_none(run_data), code="experts.none", hint="omit --svg")
            write_atomic(file, experts_picture(run_data, history).encode())
        if as_json:
            told = experts_json(run_data)
            json_out(told if file is None else {**told, "file": str(file)})
        elif file is not None:
            data(str(file))
        elif history is None:
            talk(why_none(run_data))
        else:
            data(experts_text(run_data, history))
