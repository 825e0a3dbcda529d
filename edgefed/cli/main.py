"""The ``edgefed`` command: global options, and where each command is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefed.cli import (
    algo,
    broker,
    config,
    coordinator,
    data,
    demo,
    device,
    doctor,
    reproduce,
    run,
    sim,
    status,
    ui,
    up,
    version,
)
from edgefed.cli.context import Globals
from edgefed.cli.help import examples
from edgefed.console import start

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Train one model over a fleet of edge devices without collecting their data.",
    epilog=examples("edgefed demo", "edgefed status", "edgefed run start recipe.toml"),
)


@app.callback()
def options(
    context: typer.Context,
    *,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", help="Settings file in place of all others.", metavar="FILE"),
    ] = None,
    no_config: Annotated[bool, typer.Option("--no-config", help="Read no settings file.")] = False,
    broker_url: Annotated[
        str | None, typer.Option("--broker", help="mqtt://HOST:PORT", metavar="URL")
    ] = None,
    fleet: Annotated[
        str | None, typer.Option("--fleet", help="Name of the fleet.", metavar="NAME")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Folder for runs, caches and logs.", metavar="FOLDER"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no notes.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print more notes.")] = False,
) -> None:
    """Train one model over a fleet of edge devices without collecting their data."""
    context.obj = Globals(
        config=config_file,
        no_config=no_config,
        broker=broker_url,
        fleet=fleet,
        state=state,
        json=as_json,
        quiet=quiet,
        verbose=verbose,
    )


app.command(epilog=demo.EPILOG)(demo.demo)
app.command(epilog=up.EPILOG)(up.up)
app.command(epilog=status.EPILOG)(status.status)
app.command(epilog=ui.EPILOG)(ui.ui)
app.command(epilog=coordinator.EPILOG)(coordinator.coordinator)
app.add_typer(run.app, name="run")
app.add_typer(device.app, name="device")
app.add_typer(algo.app, name="algo")
app.add_typer(sim.app, name="sim")
app.command(epilog=reproduce.EPILOG)(reproduce.reproduce)
app.add_typer(data.app, name="data")
app.add_typer(broker.app, name="broker")
app.add_typer(config.app, name="config")
app.command(epilog=doctor.EPILOG)(doctor.doctor)
app.command(epilog=version.EPILOG)(version.version)


def main() -> None:
    """Run the command line."""
    start(app)


if __name__ == "__main__":
    main()
