"""Orders about the fleet's members, for ``edgefed device`` and ``edgefed operator``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.console import columns, confirm, talk

if TYPE_CHECKING:
    from edgefed.cli.context import Globals

EXPIRES = "15m"

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

EXAMPLES = "such as 90s, 15m, 2h or 1d"

Expires = Annotated[
    str,
    typer.Option(metavar="DURATION", help="How long the token can be used: 90s, 15m, 2h or 1d."),
]
Qr = Annotated[bool, typer.Option("--qr", help="Also print the token as a QR code.")]


def invite(options: Globals, role: str, name: str, expires: str, *, qr: bool) -> None:
    """Order a token, and print it alone on stdout."""
    seconds = _seconds(expires)
    with options.connected() as coordinator:
        told = coordinator.order("member.invite", role=role, name=name, seconds=seconds)
    options.answer(told, told["token"])
    if qr and not options.json:
        talk(_picture(told["token"]))
    options.note(_explanation(told))


def _explanation(told: dict[str, Any]) -> str:
    """Return what a token is for."""
    device = told["role"] == "device"
    command = "edgefed-agent enroll" if device else "edgefed operator enroll"
    whom = f"{told['role']} {told['name']}" if told["name"] else "one device, which names itself"
    here = "" if told["name"] else "\n  here, once it waits: edgefed device approve NAME"
    return f"for {whom}; once, until {told['expires']}\n  there: {command} TOKEN{here}"


def order(options: Globals, action: str, done: str, **arguments: str) -> None:
    """Give an order about one name, and print the result."""
    with options.connected() as coordinator:
        told = coordinator.order(action, **arguments)
    options.done(told, done.format(**told))


def remove(options: Globals, done: str, user: str, *, yes: bool) -> None:
    """End a membership permanently, after a confirmation."""
    confirm("Removing", f"Revoke the certificate of {user} for good?", yes=yes)
    order(options, "member.remove", done, user=user)


def listing(options: Globals, roles: tuple[str, ...]) -> None:
    """Print the enrolled, former and invited members."""
    with options.connected() as coordinator:
        rows = [row for row in coordinator.ask("member.list") if row["role"] in roles]
    head = ("NAME", "ROLE", "STATE", "SINCE", "EXPIRES", "KEY")
    keys = ("name", "role", "state", "since", "expires", "fingerprint")
    options.answer(
        rows,
        columns([head, *(tuple(str(row[key]) for key in keys) for row in rows)]),
        empty="nobody yet; invite a device: edgefed device invite NAME",
    )


def _seconds(expires: str) -> float:
    """Return the seconds until a token expires.

    Raises:
        UsageError: it is no duration, or none that a token may have.
    """
    from edgefed.errors import UsageError
    from edgefed.units import seconds_of

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
