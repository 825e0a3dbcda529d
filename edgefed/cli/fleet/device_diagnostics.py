"""``edgefed device ping | logs``: response times of devices, and logs of their agents."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from edgefed.cli.common import completion
from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import DeviceId
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns, talk

if TYPE_CHECKING:
    from edgefed.control.device_log import DeviceLog, LogPart

FOLLOW_EVERY = 1.0
"""Seconds between two looks at a log that is followed."""

_AWAY = ("device.lost", "device.silent")
"""Codes of errors that pass when an agent is started again."""

MARGIN = 10.0
"""Seconds beside the time limit of devices in which the coordinator has to answer."""

Timeout = Annotated[
    float,
    typer.Option("--timeout", help="Seconds to wait for an answer.", min=0.1, max=60.0),
]


def add_commands(app: CommandLine) -> None:
    """Add the commands to ``edgefed device``."""
    app.command(
        epilog=examples("edgefed device ping jetson-07", "edgefed device ping --all"), json=True
    )(ping)
    app.command(
        epilog=examples(
            "edgefed device logs jetson-07 --lines 100", "edgefed device logs jetson-07 --follow"
        ),
        json=True,
    )(logs)


def ping(
    context: typer.Context,
    devices: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DEVICE...",
            help="Device ids.",
            show_default=False,
            autocompletion=completion.devices,
        ),
    ] = None,
    *,
    everybody: Annotated[bool, typer.Option("--all", help="Every device of the fleet.")] = False,
    timeout: Timeout = 5.0,
) -> None:
    """Measure how long the agents of devices take to answer the coordinator.

    An agent answers at once, even while it trains.

    Exit code 7: some devices do not answer; 6: none does.
    """
    from edgefed.errors import UsageError

    options = globals_of(context)
    named = devices or []
    if bool(named) == everybody:
        raise UsageError("Name the devices, or all of them.", hint="edgefed device ping --all")
    with options.connected() as coordinator:
        asked = {"devices": named, "timeout": timeout}
        results = coordinator.call("device.ping", asked, timeout + MARGIN)
    rows = [("DEVICE", "ROUND TRIP"), *(_row(result) for result in results)]
    options.answer(results, columns(rows), empty="No device yet.")
    _check_answers(results, timeout)


def logs(
    context: typer.Context,
    device: DeviceId,
    *,
    lines: Annotated[
        int, typer.Option("--lines", "-n", help="Lines to begin with.", min=1, max=200)
    ] = 20,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Print new lines as they come, also of a new agent, until Ctrl-C.",
        ),
    ] = False,
    timeout: Timeout = 5.0,
) -> None:
    """Print the end of the log of a device's agent, fetched through the broker.

    Times are those of the device's clock. The agent keeps its last 500 lines.
    """
    from edgefed.control.device_log import DeviceLog

    options = globals_of(context)
    with options.connected() as coordinator:
        log = DeviceLog(partial(coordinator.call, timeout=timeout + MARGIN), device, timeout)
        _print(options, log.tail(lines), device)
        if follow:
            _follow(options, log, device)


def _follow(options: Globals, log: DeviceLog, device: str) -> NoReturn:
    """Print new lines as they come; while the device does not answer, wait for it."""
    from edgefed.errors import EdgeFedError

    answers = True
    while True:
        time.sleep(FOLLOW_EVERY)
        try:
            part = log.newer()
        except EdgeFedError as error:
            if error.code not in _AWAY:
                raise
            if answers:
                talk(f"{device} does not answer; waiting for it.")
            answers = False
        else:
            _print(options, part, device)
            answers = True


def _print(options: Globals, part: LogPart, device: str) -> None:
    if part.restarted:
        talk(f"The agent of {device} was started again.")
    if part.missed:
        talk(f"{part.missed} lines came too fast and are left out.")
    for line in part.lines:
        options.answer({"device": device, "line": line}, line)


def _row(result: dict[str, Any]) -> tuple[str, str]:
    words = {"silent": "no answer", "lost": "lost"}
    seconds = result["seconds"]
    shown = words[result["outcome"]] if seconds is None else f"{seconds * 1000:.1f} ms"
    return result["device"], shown


def _check_answers(results: list[dict[str, Any]], timeout: float) -> None:
    """End with an error that names the devices that did not answer.

    Raises:
        PartlyDoneError: others did.
        TimeLimitError: none did.
    """
    from edgefed.errors import PartlyDoneError, TimeLimitError

    silent = [result["device"] for result in results if result["outcome"] != "answered"]
    if not silent:
        return
    message = f"No answer within {timeout:g} s from {', '.join(silent)}."
    hint = "edgefed device show DEVICE; an agent of an older version does not answer"
    if len(silent) == len(results):
        raise TimeLimitError(message, code="device.silent", hint=hint)
    raise PartlyDoneError(message, code="device.ping", hint=hint)
