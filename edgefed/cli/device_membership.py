"""``edgefed device invite | approve | reject | remove | enrolled``: which devices belong here."""

from __future__ import annotations

from typing import Annotated

import typer

from edgefed.cli import completion
from edgefed.cli.context import globals_of
from edgefed.cli.help import examples
from edgefed.cli.membership import EXPIRES, Expires, Qr, Yes, invite, listing, order
from edgefed.cli.membership import remove as end_membership
from edgefed.command_line import CommandLine

Waiting = Annotated[
    str,
    typer.Argument(
        help="Name of the device.", show_default=False, autocompletion=completion.waiting_devices
    ),
]
Enrolled = Annotated[
    str,
    typer.Argument(
        help="Name of the device.", show_default=False, autocompletion=completion.enrolled_devices
    ),
]


def add_commands(app: CommandLine) -> None:
    """Add the commands to ``edgefed device``."""
    app.command(
        "invite",
        epilog=examples("edgefed device invite cam-1", "edgefed device invite --expires 2h --qr"),
        json=True,
    )(invite_)
    app.command("approve", epilog=examples("edgefed device approve cam-1"), json=True)(approve)
    app.command("reject", epilog=examples("edgefed device reject cam-1"), json=True)(reject)
    app.command("remove", epilog=examples("edgefed device remove cam-1"), json=True)(remove)
    app.command(
        "enrolled",
        epilog=examples("edgefed device enrolled", "edgefed device enrolled --json"),
        json=True,
    )(enrolled)


def invite_(
    context: typer.Context,
    device: Annotated[
        str,
        typer.Argument(help="Name of the device; without, it names itself.", show_default=False),
    ] = "",
    *,
    expires: Expires = EXPIRES,
    qr: Qr = False,
) -> None:
    """Print a token with which one device enrols: edgefed-agent enroll TOKEN.

    With a name, the device is enrolled at once. Without, it names itself and waits until an
    operator approves it. A token can be used once and expires.
    """
    invite(globals_of(context), "device", device, expires, qr=qr)


def approve(context: typer.Context, device: Waiting) -> None:
    """Enrol a device that waits for approval.

    Compare the key that the device shows with the one in edgefed device enrolled first.
    """
    done = "enrolled: {name}, with the key {fingerprint}"
    order(globals_of(context), "member.approve", done, name=device)


def reject(context: typer.Context, device: Waiting) -> None:
    """Refuse a device that waits for approval."""
    order(globals_of(context), "member.reject", "rejected: {name}", name=device)


def remove(context: typer.Context, device: Enrolled, *, yes: Yes = False) -> None:
    """Remove a device from the fleet permanently: its certificate is revoked at once.

    The device stops in mid-round. To return it needs a new token. A Mosquitto that edgefed broker
    up does not run has to be reloaded.
    """
    done = (
        "removed: {name}; its certificate is revoked\n"
        "  a broker that is run as a system service: sudo systemctl reload mosquitto"
    )
    end_membership(globals_of(context), done, device, yes=yes)


def enrolled(context: typer.Context) -> None:
    """List the devices that are enrolled, invited, waiting for approval, or removed."""
    listing(globals_of(context), ("device",))
