"""``edgefed device forget | pause | resume | quarantine | release``: asked devices."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import DeviceId, Json
from edgefed.command_line import CommandLine
from edgefed.console import json_out, reported, talk


def add_commands(app: CommandLine) -> None:
    """Add the commands to ``edgefed device``."""
    app.command(
        epilog=examples(
            "edgefed device forget jetson-07", "edgefed device forget --all-lost --json"
        )
    )(forget)
    app.command(epilog=examples("edgefed device pause jetson-07 --reason 'new fan'"))(pause)
    app.command(epilog=examples("edgefed device resume jetson-07"))(resume)
    app.command(epilog=examples("edgefed device quarantine jetson-07"))(quarantine)
    app.command(epilog=examples("edgefed device release jetson-07"))(release)


def forget(
    context: typer.Context,
    device: DeviceId = "",
    *,
    all_lost: Annotated[bool, typer.Option("--all-lost", help="Forget every lost device.")] = False,
    as_json: Json = False,
) -> None:
    """Forget a lost device until its agent connects again.

    A device that is online cannot be forgotten.
    """
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.connection import connected
        from edgefed.errors import UsageError

        if bool(device) == all_lost:
            raise UsageError(
                "Name one device, or --all-lost.", hint="edgefed device list shows which are lost"
            )
        with connected(options) as coordinator:
            told = coordinator.order("device.forget", device=device)
        if as_json:
            json_out(told)
        elif not options.quiet:
            talk(f"forgotten: {', '.join(told['forgotten']) or 'no device is lost'}")


def pause(
    context: typer.Context,
    device: DeviceId,
    *,
    reason: Annotated[
        str, typer.Option("--reason", help="Shown with the device; up to 200 characters.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Stop asking a device until it is resumed; it stays connected, and its trust is unchanged.

    It finishes its current task. The pause outlasts runs and restarts.
    """
    _order(context, "device.pause", as_json, device=device, reason=reason)


def resume(context: typer.Context, device: DeviceId, as_json: Json = False) -> None:
    """Let a paused device take part again."""
    _order(context, "device.resume", as_json, device=device)


def quarantine(context: typer.Context, device: DeviceId, as_json: Json = False) -> None:
    """Stop asking a device until it is released, and refuse its further replies."""
    _order(context, "device.quarantine", as_json, device=device)


def release(context: typer.Context, device: DeviceId, as_json: Json = False) -> None:
    """Let a device take part again that is quarantined or announces far more samples than others.

    After a quarantine it stays suspect for a while.
    """
    _order(context, "device.release", as_json, device=device)


def _order(context: typer.Context, action: str, as_json: bool, **arguments: Any) -> None:
    """Give an order about one device and print its effect."""
    options = globals_of(context)
    as_json = as_json or options.json
    with reported(as_json):
        from edgefed.cli.connection import connected

        with connected(options) as coordinator:
            told = coordinator.order(action, **arguments)
        if as_json:
            json_out(told)
        elif not options.quiet:
            talk("; ".join(f"{done}: {name}" for done, name in told.items()))
