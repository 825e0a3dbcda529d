"""Errors about a broker that refuses a client or does not answer: one code, one hint."""

from __future__ import annotations

from edgefed.config.values.address import Address
from edgefed.errors import NotAllowedError, UnreachableError

BROKER = "--broker"
"""The option that names the broker of most programs; a gateway has another one for its fleet's."""


def refused(address: Address, reason: str, option: str = BROKER) -> NotAllowedError:
    """Return the error for a broker that requires a login, or another one."""
    setting = "EDGEFED_BROKER=" if option == BROKER else f"{option} "
    return NotAllowedError(
        f"The MQTT broker at {address} refused the connection: {reason}.",
        code="broker.refused",
        hint="its access list does not know this certificate: edgefed device list"
        if address.tls
        else f"check user and password: {setting}mqtt://USER:PASSWORD@HOST:PORT, "
        "with % written as %25 and @ as %40",
    )


def revoked(address: Address) -> NotAllowedError:
    """Return the error for a broker that says that this party's certificate is revoked."""
    own = address.credentials
    party = f"The certificate of {own.certificate.user}" if own else "This certificate"
    return NotAllowedError(
        f"{party} is revoked, says the broker at {address}.",
        code="broker.revoked",
        hint="its fleet has removed it; to come back, ask for a token there (edgefed device invite,"
        " gateway invite or operator invite), and enrol again",
    )


def denied(address: Address, topic_filter: str) -> NotAllowedError:
    """Return the error for a broker that refuses a subscription."""
    return NotAllowedError(
        f"The MQTT broker at {address} refused the subscription to {topic_filter}.",
        code="broker.subscription",
        hint="the coordinator's machine, its broker and this one need the same version of EdgeFed; "
        "on the coordinator's machine: edgefed broker check",
    )


NO_ADDRESS = "its name has no address here"
"""Reason why a host cannot be connected to whose name is not resolved."""


def unreachable(address: Address, reason: str, option: str = BROKER) -> UnreachableError:
    """Return the error for a broker that does not answer."""
    there = f"start it on its machine: edgefed broker up; or check {option} {address.scheme}://HOST:PORT"
    return UnreachableError(
        f"No MQTT broker at {address}: {reason}.",
        hint=f"check the name, and name resolution on this machine: getent hosts {address.host}"
        if NO_ADDRESS in reason
        else f"{there}, where PORT is that of devices, and commands use PORT + 2"
        if address.tls
        else there
        if option != BROKER
        else "start one with: edgefed broker up, or name yours with --broker mqtt://HOST:PORT; if "
        "the fleet has certificates, enrol this machine first (docs/enrolment.md)",
    )


def silent(address: Address, when: str) -> UnreachableError:
    """Return the error for a port that takes connections but does not answer as a broker does.

    Args:
        address: of the port.
        when: event or time waited for, as the end of a sentence.
    """
    reason = f"the connection was accepted, but there was no answer {when}"
    own = address.credentials
    ends = f"; its certificate ends {own.certificate.not_after:%Y-%m-%d %H:%M} UTC" if own else ""
    return UnreachableError(
        f"No MQTT broker at {address}: {reason}.",
        hint="another program uses this port, or the fleet has removed this party: "
        f"edgefed device enrolled, edgefed gateway list, edgefed operator list{ends}"
        if address.tls
        else "another program uses this port, or its broker wants certificates: "
        "edgefed-agent enroll TOKEN, edgefed operator enroll TOKEN",
    )
