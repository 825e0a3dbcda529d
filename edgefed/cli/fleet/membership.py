"""Orders about the fleet's members, and the commands of ``edgefed device`` that give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common import completion
from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns, confirm, talk
from edgefed.terminal.units import counted

if TYPE_CHECKING:
    from edgefed.cli.common.context import Globals
    from edgefed.trust.certificates import Role

EXPIRES = "15m"

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

EXAMPLES = "such as 90s, 15m, 2h or 1d"

Expires = Annotated[
    str,
    typer.Option(metavar="DURATION", help="How long the token can be used: 90s, 15m, 2h or 1d."),
]
Qr = Annotated[bool, typer.Option("--qr", help="Also print the token as a QR code.")]


def invite(
    options: Globals, role: str, name: str, expires: str, *, qr: bool, **limits: int
) -> None:
    """Order a token, and print it alone on stdout."""
    seconds = _seconds(expires)
    with options.connected() as coordinator:
        answer = coordinator.order("member.invite", role=role, name=name, seconds=seconds, **limits)
    answer |= limits
    options.answer(answer, answer["token"])
    if qr and not options.json:
        talk(_picture(answer["token"]))
    options.note(_explanation(answer, options.command("device approve NAME")))


def _explanation(answer: dict[str, Any], approve: str) -> str:
    """Return what a token is for."""
    commands = {"device": "edgefed-agent enroll", "gateway": "edgefed gateway enroll"}
    command = commands.get(answer["role"], "edgefed operator enroll")
    whom = (
        f"{answer['role']} {answer['name']}" if answer["name"] else "one device, which names itself"
    )
    if "devices" in answer:
        most = counted(answer["devices"], "device"), counted(answer["samples"], "sample")
        whom += f", with {' and '.join(most)} at most"
    here = "" if answer["name"] else f"\n  here, once it waits: {approve}"
    return f"for {whom}; once, until {answer['expires']}\n  there: {command} TOKEN{here}"


def enroll_here(options: Globals, token: str, roles: tuple[Role, ...]) -> dict[str, str]:
    """Exchange a token for credentials on this machine; return their fleet, name, role and broker.

    Raises:
        UsageError, NotAllowedError, UnreachableError: as the token, the fleet and its broker are.
    """
    from edgefed.control.enrolment_client import Applicant, enroll
    from edgefed.process.clock import SystemClock
    from edgefed.trust.tokens import parse_token

    applicant = Applicant(parse_token(token), "", roles, options.settings().value.state)
    made = enroll(applicant, SystemClock(), talk)
    certificate = made.certificate
    return {
        "fleet": made.fleet,
        "name": certificate.name,
        "role": certificate.role,
        "broker": made.broker,
    }


def order(options: Globals, action: str, done: str, **arguments: str) -> None:
    """Give an order about one name, and print the result."""
    with options.connected() as coordinator:
        answer = coordinator.order(action, **arguments)
    options.done(answer, done.format(**answer))


def end_membership(options: Globals, done: str, role: str, user: str, *, yes: bool) -> None:
    """End a membership permanently, after a confirmation."""
    confirm("Removing", f"Revoke the certificate of {user} for good?", yes=yes)
    order(options, "member.remove", done, user=user, role=role)


def listing(options: Globals, roles: tuple[str, ...]) -> None:
    """Print the enrolled, former and invited members."""
    with options.connected() as coordinator:
        rows = [row for row in coordinator.ask("member.list") if row["role"] in roles]
    head = ("NAME", "ROLE", "STATE", "SINCE", "EXPIRES", "KEY")
    keys = ("name", "role", "state", "since", "expires", "fingerprint")
    options.answer(
        rows,
        columns([head, *(tuple(str(row[key]) for key in keys) for row in rows)]),
        empty=f"nobody yet; invite a device: {options.command('device invite NAME')}",
    )


def _seconds(expires: str) -> float:
    """Return the seconds until a token expires.

    Raises:
        UsageError: it is no duration, or none that a token may have.
    """
    from edgefed.errors import UsageError
    from edgefed.terminal.units import seconds_of

    longest = 30 * 86400.0
    try:
        seconds = seconds_of(expires)
    except ValueError as error:
        raise UsageError(f"--expires: {error}.", code="enrol.expires", hint=EXAMPLES) from error
    if not 0 < seconds <= longest:
        raise UsageError(
            f"--expires: a token cannot be valid for {expires}; at most 30 days.",
            code="enrol.expires",
            hint=EXAMPLES,
        )
    return seconds


def _picture(token: str) -> str:
    """Return a QR code as characters; upper case takes fewer squares."""
    import io

    import segno

    out = io.StringIO()
    segno.make(token.upper(), error="l").terminal(out, compact=True)
    return out.getvalue().rstrip("\n")


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


def add_device_commands(app: CommandLine) -> None:
    """Add invite, approve, reject, remove and enrolled to ``edgefed device``."""
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
    end_membership(globals_of(context), done, "device", device, yes=yes)


def enrolled(context: typer.Context) -> None:
    """List the devices that are enrolled, invited, waiting for approval, or removed."""
    listing(globals_of(context), ("device",))
