"""``edgefed plugin``: the plug-ins of installed packages."""

from __future__ import annotations

from dataclasses import asdict

import typer

from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import Json
from edgefed.command_line import CommandLine
from edgefed.console import columns, data, json_out, reported, talk

app = CommandLine(help="Show the plug-ins of installed packages.")


@app.callback()
def plugin_() -> None:
    """Show the plug-ins of installed packages."""


@app.command("list", epilog=examples("edgefed plugin list", "edgefed plugin list --json"))
def list_(context: typer.Context, as_json: Json = False) -> None:
    """List algorithms, models, data sets and partitions that installed packages offer.

    Each is imported. One that cannot be used is listed with the reason.
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.algorithms.installed_plugins import installed_plugins

        found = installed_plugins()
        if as_json:
            json_out([asdict(each) for each in found])
        elif found:
            rows = [(e.kind, e.name, e.package, e.problem or "usable") for e in found]
            data(columns(rows))
        elif not options.quiet:
            talk("no installed package offers plug-ins")


app.command("ls", hidden=True)(list_)
