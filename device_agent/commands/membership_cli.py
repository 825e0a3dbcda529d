"""``edgefed-agent enroll``, ``address`` and ``leave``: join a fleet, follow it, and leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from device_agent.commands.options import Name, agent_settings
from edgefed.terminal.common_options import common_options
from edgefed.terminal.console import columns, confirm, json_out, talk

if TYPE_CHECKING:
    from edgefed.trust.credentials import Credentials


def enroll(
    context: typer.Context,
    token: Annotated[
        str, typer.Argument(help="What edgefed device invite printed.", show_default=False)
    ],
    *,
    name: Name = None,
) -> None:
    """Exchange a token for this device's certificate.

    The private key is made on this device and never leaves it. After a kill at any moment, the same
    command resumes. Then `edgefed-agent run` needs no name, fleet or broker.
    """
    from device_agent.identity.device_name import device_name
    from edgefed.control.enrolment_client import Applicant
    from edgefed.control.enrolment_client import enroll as trade
    from edgefed.errors import UsageError
    from edgefed.process.clock import SystemClock
    from edgefed.trust.tokens import parse_token

    options = common_options(context)
    settings = agent_settings(options, name=name, enrolled=False)
    parsed = parse_token(token)
    if options.fleet not in (None, parsed.fleet):
        raise UsageError(
            f"The token is for fleet {parsed.fleet}, not for {options.fleet}.",
            code="enrol.fleet",
            hint="leave --fleet out",
        )
    own = settings.name or ("" if parsed.name else device_name(settings))
    applicant = Applicant(parsed, own, ("device",), settings.state)
    made = trade(applicant, SystemClock(), talk)
    answer = _plain(made)
    options.answer(answer, columns(list(answer.items())))
    options.note("next: edgefed-agent run --data npz:FILE")


def _plain(made: Credentials) -> dict[str, str]:
    from edgefed.process.clock import timestamp
    from edgefed.trust.tokens import fingerprint

    return {
        "name": made.certificate.name,
        "fleet": made.fleet,
        "broker": made.broker,
        "key": fingerprint(made.certificate.public_bytes),
        "expires": timestamp(made.certificate.not_after),
    }


def address(
    context: typer.Context,
    broker: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="mqtts://HOST:PORT.", show_default=False)
    ],
    *,
    name: Name = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not look whether the fleet's broker answers.")
    ] = False,
) -> None:
    """Save the new address of the fleet's broker, after the coordinator has moved.

    Stop the agent first. A broker setting (--broker, EDGEFED_BROKER or a settings file) overrides
    the saved address.
    """
    from device_agent.commands.leave import enrolled_folder
    from device_agent.identity.device_name import agent_folder
    from edgefed.config.fleet.broker_address import load
    from edgefed.process.lock import FolderLock
    from edgefed.transport.new_address import save_new_address

    options = common_options(context)
    settings = agent_settings(options, name=name)
    folder = enrolled_folder(settings)
    lock = FolderLock(agent_folder(settings), "edgefed-agent address")
    try:  # an agent that runs would write the old address with its next certificate
        saved = save_new_address(load(folder), broker, check=not offline)
    finally:
        lock.release()
    options.done(
        {"name": folder.name, "broker": str(saved)},
        f"{folder.name} of fleet {settings.fleet} uses {saved}",
    )


def leave(
    context: typer.Context,
    *,
    name: Name = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Leave the fleet for good: the certificate is revoked, and the credentials are deleted.

    Without a connection the credentials are deleted all the same, and an operator has to remove the
    device. The device's data and its training results stay.
    """
    from device_agent.commands.leave import enrolled_folder, leave_fleet

    options = common_options(context)
    settings = agent_settings(options, name=name)
    enrolled_folder(settings)
    confirm("Leaving the fleet", "Delete this device's credentials?", yes=yes)
    left = leave_fleet(settings)
    if options.json:
        json_out({"name": left.name, "fleet": left.fleet, "revoked": left.revoked})
        return
    if left.revoked:
        talk(f"{left.name} has left fleet {left.fleet}; its certificate is revoked")
    else:
        talk(
            f"! {left.name} has deleted its credentials, but the coordinator was not reached:"
            f" {left.reason}"
        )
        talk(f"  on an operator's machine: edgefed device remove {left.name}")
