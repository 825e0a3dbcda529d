"""``edgefed operator``: operators and viewers on other machines."""

from __future__ import annotations

from typing import Annotated

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.fleet.membership import (
    EXPIRES,
    Expires,
    Qr,
    Yes,
    end_membership,
    enroll_here,
    invite,
    listing,
)
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import data, json_out, talk

app = CommandLine(help="Admit operators and viewers, who use the fleet from other machines.")

Name = Annotated[str, typer.Argument(help="Name of the operator.", show_default=False)]
Viewer = Annotated[bool, typer.Option("--viewer", help="Somebody who may only watch.")]


@app.command(
    "invite",
    epilog=examples("edgefed operator invite maria", "edgefed operator invite hall-2 --viewer"),
    json=True,
)
def invite_(
    context: typer.Context,
    name: Name,
    *,
    viewer: Viewer = False,
    expires: Expires = EXPIRES,
    qr: Qr = False,
) -> None:
    """Print a token with which another machine becomes an operator's: edgefed operator enroll."""
    invite(globals_of(context), _role(viewer), name, expires, qr=qr)


@app.command(epilog=examples("edgefed operator enroll TOKEN"), json=True)
def enroll(
    context: typer.Context,
    token: Annotated[str, typer.Argument(help="What operator invite printed.", show_default=False)],
) -> None:
    """Exchange a token for the credentials of an operator or viewer on this machine.

    The private key is made here and stays here. After a kill at any moment, the same command
    resumes.
    """
    options = globals_of(context)
    answer = enroll_here(options, token, ("operator", "viewer"))
    if options.json:
        json_out(answer)
    elif not options.quiet:
        data("{role} {name} of fleet {fleet}".format(**answer))
        talk(f"next: {options.command('status', fleet=answer['fleet'], broker=None)}")


@app.command(epilog=examples("edgefed operator address mqtts://hub.example:8883"))
def address(
    context: typer.Context,
    broker: Annotated[
        str,
        typer.Argument(metavar="ADDRESS", help="mqtts://HOST:PORT.", show_default=False),
    ],
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not look whether the fleet's broker answers.")
    ] = False,
) -> None:
    """Save the new address of the fleet's broker for the operator or viewer of this machine."""
    from edgefed.config.fleet.broker_address import credentials_folder, load, trust_folder
    from edgefed.errors import NotAllowedError
    from edgefed.transport.new_address import save_new_address

    options = globals_of(context)
    settings = options.settings().value
    folder = credentials_folder(trust_folder(settings), ("operator.*", "viewer.*"))
    if folder is None:
        raise NotAllowedError(
            f"This machine has no credentials of an operator of fleet {settings.fleet}.",
            code="trust.missing",
            hint="name the fleet with --fleet, or enrol: edgefed operator enroll TOKEN",
        )
    saved = save_new_address(load(folder), broker, check=not offline)
    options.done(
        {"name": folder.name, "broker": str(saved)},
        f"{folder.name} of fleet {settings.fleet} uses {saved}",
    )


@app.command(
    epilog=examples(
        "edgefed operator remove maria", "edgefed operator remove hall-2 --viewer --yes"
    ),
    json=True,
)
def remove(context: typer.Context, name: Name, *, viewer: Viewer = False, yes: Yes = False) -> None:
    """Remove an operator or viewer permanently: the certificate is revoked at once."""
    done = "removed: {role} {name}; the certificate is revoked"
    options = globals_of(context)
    role = _role(viewer)
    end_membership(options, done, role, f"{role}.{name}", yes=yes)


@app.command(
    "list", epilog=examples("edgefed operator list", "edgefed operator list --json"), json=True
)
def list_(context: typer.Context) -> None:
    """List operators and viewers: enrolled, invited or removed."""
    listing(globals_of(context), ("operator", "viewer"))


def _role(viewer: bool) -> str:
    return "viewer" if viewer else "operator"
