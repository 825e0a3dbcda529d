"""``edgefed ui``: the dashboard of a running fleet."""

from __future__ import annotations

from typing import Annotated

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import Ascii
from edgefed.cli.common.terminal import failure_shown_in_browser
from edgefed.cli.runs.replay import FirstRound, Speed, show_replay

EPILOG = examples(
    "edgefed ui",
    "edgefed --broker mqtt://192.0.2.7:1883 --fleet plant-a ui --read-only",
    "edgefed ui --replay latest --speed 8",
    "edgefed ui --web --port 8001",
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
            help="Replay a run of this machine by its id or name (latest for the newest), its "
            "folder, or an event file, without a broker.",
        ),
    ] = None,
    speed: Speed = "1",
    first_round: FirstRound = 1,
    web: Annotated[
        bool,
        typer.Option(
            "--web",
            help="Serve the dashboard to browsers of this machine until Ctrl-C.",
            rich_help_panel="Browser",
        ),
    ] = False,
    bind: Annotated[
        str | None,
        typer.Option(
            "--bind",
            metavar="HOST[:PORT]",
            help="Loopback address to serve on; by default 127.0.0.1.",
            rich_help_panel="Browser",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=1,
            max=65535,
            help="Port to serve on; by default 8000.",
            rich_help_panel="Browser",
        ),
    ] = None,
) -> None:
    """Open the dashboard. Closing it does not stop a run; several people can watch.

    With --web, it is shown in browsers instead. The command prints the address
    to open, which contains a secret. It needs the extra web.
    """
    options = globals_of(context)
    with failure_shown_in_browser():
        _check(replay, speed, first_round, web, bind, port)
        if web:
            shown = ["--read-only"] if read_only else []
            if replay is not None:
                shown = ["--replay", replay, "--speed", speed, "--round", str(first_round)]
            _serve(options, shown, ascii, replay, first_round, bind, port)
        elif replay is not None:
            show_replay(options, replay, speed, first_round, ascii)
        else:
            _show(options, read_only, ascii)


def _check(
    replay: str | None,
    speed: str,
    first_round: int,
    web: bool,
    bind: str | None,
    port: int | None,
) -> None:
    """Refuse options that need another one."""
    from edgefed.errors import UsageError

    if replay is None and (speed != "1" or first_round != 1):
        raise UsageError("--speed and --round are for a replay.", hint="add --replay RUN")
    if not web and (bind or port):
        raise UsageError("--bind and --port are for browsers.", hint="add --web")


def _find_broker(options: Globals) -> None:
    """Check that there is a broker; the hint of the error names what works without one."""
    from edgefed.errors import UnreachableError

    try:
        with options.connected():
            pass
    except UnreachableError as error:
        error.hint += "; a recorded run needs no broker: edgefed ui --replay latest"
        raise


def _show(options: Globals, read_only: bool, letters: bool | None) -> None:
    """Show the dashboard of the fleet until it is closed."""
    from edgefed.cli.common.terminal import require_terminal

    require_terminal("edgefed status, or edgefed run watch")
    from edgefed.cli.programs.run_launcher import StartOptions
    from edgefed.cli.programs.show_dashboard import show
    from edgefed.config.fleet.broker_address import broker_address
    from edgefed.process.clock import SystemClock
    from edgefed.tui.keys.keymap import checked_keymap

    keys = checked_keymap(options.settings())
    _find_broker(options)
    settings = options.settings().value
    show(
        broker_address(settings),
        settings.fleet,
        SystemClock(),
        read_only=read_only,
        ascii=letters,
        state=settings.state,
        bell=settings.alerts.bell,
        keys=keys,
        start=StartOptions.of(options),
    )


def _serve(
    options: Globals,
    shown: list[str],
    letters: bool | None,
    replay: str | None,
    first_round: int,
    bind: str | None,
    port: int | None,
) -> None:
    """Serve the dashboard to browsers, once it is known that it can be shown."""
    from edgefed.cli.programs.web_dashboard import serve_dashboard, web_address
    from edgefed.cli.runs.replay import event_file
    from edgefed.events.history.recording import Recording
    from edgefed.tui.keys.keymap import checked_keymap

    address, loaded = web_address(bind, port), options.settings()
    checked_keymap(loaded)
    if replay is None:
        _find_broker(options)
        title = loaded.value.fleet
    else:
        recording = Recording.read_nonempty(event_file(loaded.value.state, replay))
        recording.start_of_round(first_round)
        title = "replay"
    # A browser has the symbols, whatever the locale of the server.
    letters_option = "--ascii" if letters else "--no-ascii"
    serve_dashboard(options, [*shown, letters_option], address, title=f"EdgeFed {title}")
