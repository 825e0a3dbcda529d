"""``edgefed device forget | pause | resume | quarantine | release``: who is asked in rounds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.cli.options import DeviceId
from edgefed.command_line import CommandLine


def add_commands(app: CommandLine) -> None:
    """Add the commands to ``edgefed device``."""
    app.command(
        epilog=examples(
            "edgefed device forget jetson-07", "edgefed device forget --all-lost --json"
        ),
        json=True,
    )(forget)
    app.command(epilog=examples("edgefed device pause jetson-07 --reason 'new fan'"), json=True)(
        pause
    )
    app.command(epilog=examples("edgefed device resume jetson-07"), json=True)(resume)
    app.command(epilog=examples("edgefed device quarantine jetson-07"), json=True)(quarantine)
    app.command(epilog=examples("edgefed device release jetson-07"), json=True)(release)


def forget(
    context: typer.Context,
    device: DeviceId = "",
    *,
    all_lost: Annotated[bool, typer.Option("--all-lost", help="Forget every lost device.")] = False,
) -> None:
    """Forget a lost device until its agent connects again.

    A device that is online cannot be forgotten.
    """
    from edgefed.errors import UsageError

    options = globals_of(context)
    if bool(device) == all_lost:
        raise UsageError(
            "Name one device, or --all-lost.", hint="edgefed device list shows which are lost"
        )
    with options.connected() as coordinator:
        told = coordinator.order("device.forget", device=device)
    options.done(told, f"forgotten: {', '.join(told['forgotten']) or 'no device is lost'}")


def pause(
    context: typer.Context,
    device: DeviceId,
    *,
    reason: Annotated[
        str, typer.Option("--reason", help="Shown with the device; up to 200 characters.")
    ] = "",
) -> None:
    """Ask a device no more until it is resumed; it stays connected and trusted as it is.

    It finishes what it was asked already. The pause outlasts runs and restarts.
    """
    _order(context, "device.pause", device=device, reason=reason)


def resume(context: typer.Context, device: DeviceId) -> None:
    """Let a paused device take part again."""
    _order(context, "device.resume", device=device)


def quarantine(context: typer.Context, device: DeviceId) -> None:
    """Ask a device no more until it is released, and refuse what it still replies."""
    _order(context, "device.quarantine", device=device)


def release(context: typer.Context, device: DeviceId) -> None:
    """Let a device take part again that is quarantined, or announces far more samples than others.

    After a quarantine it stays suspect for a while.
    """
    _order(context, "device.release", device=device)


def _order(context: typer.Context, action: str, **arguments: Any) -> None:
    """Give an order about one device and say what it did."""
    options = globals_of(context)
    with options.connected() as coordinator:
        told = coordinator.order(action, **arguments)
    options.done(told, "; ".join(f"{done}: {name}" for done, name in told.items()))
