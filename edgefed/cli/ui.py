"""``edgefed ui``: the dashboard of a running fleet."""

from __future__ import annotations

from typing import Annotated

import typer

from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import Ascii
from edgefed.cli.replay import Speed, show_replay
from edgefed.console import reported

EPILOG = examples(
    "edgefed ui",
    "edgefed --broker mqtt://192.0.2.7:1883 --fleet plant-a ui --read-only",
    "edgefed ui --replay r-0001 --speed 8",
)


def ui(
    context: typer.Context,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Watch without giving orders.")
    ] = False,
    ascii: Ascii = None,  # noqa: A002 - the option's name
    replay: Annotated[
        str | None,
        typer.Option(
            "--replay",
            metavar="RUN|FILE",
            help="Replay a run of this machine, its folder, or an event file, without a broker.",
        ),
    ] = None,
    speed: Speed = "1",
) -> None:
    """Open the dashboard. Closing it does not stop a run; several people can watch."""
    options = globals_of(context)
    with reported(options.json):
        if replay is None and speed != "1":
            from edgefed.errors import UsageError

            raise UsageError("--speed is for a replay.", hint="add --replay RUN")
        if replay is not None:
            show_replay(options, replay, speed, ascii)
            return
        from edgefed.cli.terminal import require_terminal

        require_terminal("edgefed status, or edgefed run watch")
        from edgefed.cli.connection import connected
        from edgefed.cli.run_launcher import StartOptions
        from edgefed.cli.show_dashboard import show
        from edgefed.clock import SystemClock
        from edgefed.config.broker_address import broker_address
        from edgefed.tui.keymap import checked_keymap

        keys = checked_keymap(options.settings())
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
            bell=settings.alerts.bell,
            keys=keys,
            start=StartOptions.of(options),
        )
