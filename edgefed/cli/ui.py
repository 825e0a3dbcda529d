"""``edgefed ui``: the dashboard of a running fleet."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.console import reported

EPILOG = examples(
    "edgefed ui", "edgefed --broker mqtt://192.0.2.7:1883 --fleet plant-a ui --read-only"
)


def ui(
    context: typer.Context,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Watch without giving orders.")
    ] = False,
    ascii: Annotated[  # noqa: A002 - the option's name
        bool | None,
        typer.Option(
            "--ascii/--no-ascii",
            help="Use letters instead of symbols.",
            show_default="letters where the locale is not UTF-8",
        ),
    ] = None,
) -> None:
    """Open the dashboard. Closing it does not stop a run; several people can watch."""
    options = globals_of(context)
    with reported(options.json):
        from edgefed.errors import UsageError

        if not (sys.stdout.isatty() and sys.stderr.isatty()):
            raise UsageError(
                "The dashboard needs a terminal.",
                code="ui.terminal",
                hint="edgefed status, or edgefed run watch",
            )
        from edgefed.cli.connection import connected
        from edgefed.cli.show_dashboard import show
        from edgefed.clock import SystemClock
        from edgefed.config.broker_address import broker_address

        with connected(options):
            pass
        settings = options.settings().value
        show(
            broker_address(settings),
            settings.fleet,
            SystemClock(),
            read_only=read_only,
            ascii=ascii,
            state=settings.state,
        )
