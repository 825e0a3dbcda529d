"""``edgefed init`` and ``edgefed broker address``: a fleet's authority and its broker's address."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.terminal.console import columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edgefed.config.fleet.settings import Settings
    from edgefed.trust.authority import Authority

EPILOG = examples(
    "edgefed init --host 192.0.2.7",
    "edgefed --fleet plant-a init --host hub.example --host 192.0.2.7",
)

ADDRESS_EPILOG = examples(
    "edgefed broker address", "edgefed broker address --host hub.example --port 8883"
)

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?|::1?")
ALWAYS = ("localhost", "127.0.0.1", "::1")
"""Names under which the broker is reached from its own machine."""


def init(
    context: typer.Context,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME_OR_IP",
            help="Name or address under which devices reach the broker; may be repeated, and the "
            "first goes into tokens. By default this machine only.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=1, max=65533, help="Port of the broker; it uses the next two, too.")
    ] = 8883,
    operator: Annotated[
        str, typer.Option(help="Name of the first operator, who is on this machine.")
    ] = "admin",
) -> None:
    """Create a fleet: its certificate authority, and credentials of broker, coordinator, operator.

    Run it once, on the machine of the coordinator. The authority's private key stays in the state
    folder of that machine; `edgefed backup` copies it.
    """
    from datetime import timedelta

    options = globals_of(context)
    from broker.secured_files import write_access as write_files
    from edgefed.config.fleet.broker_address import trust_folder
    from edgefed.coordinator.members.new_fleet import create_fleet
    from edgefed.process.clock import SystemClock

    settings = options.settings().value
    hosts = tuple(dict.fromkeys([*(_host(typed) for typed in host or ()), *ALWAYS]))
    trust = trust_folder(settings)

    def write_access(folder: Path, users: list[str], revoked: bytes) -> None:
        write_files(folder, settings.fleet, users, revoked)

    authority = create_fleet(
        trust,
        settings.fleet,
        _url(hosts[0], port),
        hosts,
        operator,
        SystemClock(),
        timedelta(days=settings.certificate_days),
        write_access,
    )
    _tell(options, authority, trust)


def address(
    context: typer.Context,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="NAME_OR_IP",
            help="Name or address under which devices reach the broker; may be repeated, and the "
            "first goes into tokens. By default those of the present certificate.",
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65533,
            help="Port of the broker; it uses the next two, too. By default the present one.",
        ),
    ] = None,
) -> None:
    """Show the address that devices use, or change it while the coordinator is stopped.

    A new address goes into tokens and into the credentials on this machine, and the broker gets a
    certificate for it. Machines that are enrolled learn it with `edgefed-agent address` and
    `edgefed operator address`. Tokens that are not used yet name the old address: invite again.
    """
    from edgefed.config.fleet.broker_address import trust_folder
    from edgefed.errors import NotAllowedError
    from edgefed.trust.authority import AUTHORITY_FOLDER, load_authority

    options = globals_of(context)
    settings = options.settings().value
    trust = trust_folder(settings)
    if not (trust / AUTHORITY_FOLDER).exists():
        raise NotAllowedError(
            f"The authority of fleet {settings.fleet} is not on this machine, in {trust}.",
            code="trust.missing",
            hint="run it where edgefed init was run; a fleet without certificates has its"
            " address in the setting broker",
        )
    authority = load_authority(trust / AUTHORITY_FOLDER)
    if host or port:
        authority = _changed(authority, settings, trust, host or (), port)
    answer = {"broker": authority.broker, "hosts": list(authority.hosts)}
    rows = [("broker", authority.broker), ("hosts", ", ".join(authority.hosts))]
    options.answer(answer, columns(rows))
    if host or port:
        options.note(
            "next: restart edgefed broker up and edgefed coordinator; then on each device:"
        )
        options.note(f"  edgefed-agent address {authority.broker}")


def _changed(
    authority: Authority, settings: Settings, trust: Path, host: Sequence[str], port: int | None
) -> Authority:
    """Change the fleet's address; hosts and a port that are not given stay."""
    from datetime import timedelta

    from broker.secured_files import write_access
    from edgefed.config.values.address import parse_address
    from edgefed.coordinator.members.fleet_address import change_address
    from edgefed.process.clock import SystemClock

    present = parse_address(authority.broker)
    named = [*(_host(typed) for typed in host), *ALWAYS] if host else authority.hosts
    hosts = tuple(dict.fromkeys(named))
    return change_address(
        trust,
        settings.state / "coordinator" / settings.fleet,
        _url(hosts[0] if host else present.host, port or present.port),
        hosts,
        SystemClock(),
        timedelta(days=settings.certificate_days),
        lambda users, revoked: write_access(trust, settings.fleet, users, revoked),
    )


def _tell(options: Globals, authority: Authority, trust: Path) -> None:
    """Print the result, and the next commands."""
    from edgefed.trust.tokens import fingerprint

    answer: dict[str, Any] = {
        "fleet": authority.fleet,
        "broker": authority.broker,
        "authority": fingerprint(authority.certificate.public_bytes),
        "folder": str(trust),
    }
    options.answer(answer, columns([(name, str(value)) for name, value in answer.items()]))
    fleet = None if authority.fleet == "default" else authority.fleet
    up, coordinator, invite, move = (
        options.command(words, fleet=fleet)
        for words in (
            "broker up",
            "coordinator",
            "device invite NAME",
            "broker address --port PORT",
        )
    )
    options.note(f"next, each in a terminal or as a service:\n  {up}\n  {coordinator}")
    options.note(f"then for each device:\n  {invite}")
    taken = _taken(authority.broker)
    if taken:
        options.note(f"! {taken} To choose others: {move}")
    if authority.hosts == ALWAYS:
        options.note(
            "! only this machine can reach the broker; for others, name its address with --host"
        )


def _taken(broker: str) -> str:
    """Return why this machine cannot listen on a port of the fleet's broker; or an empty text."""
    from broker.address import require_free
    from edgefed.cli.programs.secured_broker import EVERYWHERE
    from edgefed.config.values.address import parse_address
    from edgefed.errors import UsageError

    own = parse_address(broker)
    own = own if own.is_loopback else replace(own, host=EVERYWHERE)
    try:
        for listener in (own, own.for_enrolment(), own.for_commands()):
            require_free(listener)
    except UsageError as error:
        return error.message
    return ""


def _host(text: str) -> str:
    """Return a host that a certificate can name.

    Raises:
        UsageError: ``enrol.host``.
    """
    from edgefed.errors import UsageError

    if not _HOST.fullmatch(text):
        raise UsageError(
            f"'{text[:80]}' is not the name or the address of a host.",
            code="enrol.host",
            hint="write it without mqtts:// and without a port, such as 192.0.2.7",
        )
    return text


def _url(host: str, port: int) -> str:
    return f"mqtts://[{host}]:{port}" if ":" in host else f"mqtts://{host}:{port}"
