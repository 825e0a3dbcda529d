"""``edgefed plugin``: the plug-ins of installed packages."""

from __future__ import annotations

from dataclasses import asdict

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns

app = CommandLine(help="Show the plug-ins of installed packages.")


@app.callback()
def plugin_() -> None:
    """Show the plug-ins of installed packages."""


@app.command(
    "list", epilog=examples("edgefed plugin list", "edgefed plugin list --json"), json=True
)
def list_(context: typer.Context) -> None:
    """List algorithms, models, data sets, partitions, selectors and trackers of installed packages.

    Each is imported. One that cannot be used is listed with the reason.
    """
    from edgefed.algorithms.composed.installed_plugins import installed_plugins

    options = globals_of(context)
    plugins = installed_plugins()
    if not plugins:
        options.done([], "no installed package offers plug-ins")
        return
    rows = [(e.kind, e.name, e.package, e.problem or "usable") for e in plugins]
    options.answer([asdict(plugin) for plugin in plugins], columns(rows))


app.command("ls", hidden=True, json=True)(list_)
