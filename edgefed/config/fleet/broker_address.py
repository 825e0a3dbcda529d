"""The broker of a fleet, and the credentials with which a program of this machine connects to it.

A program that is enrolled finds its credentials in ``STATE/trust/FLEET/USER``. Without credentials
only a broker on this machine can be used, unless ``insecure`` is set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgefed.config.fleet.settings import FleetSettings
from edgefed.config.values.address import Address, parse_address
from edgefed.errors import NotAllowedError
from edgefed.process.clock import Clock, SystemClock
from edgefed.trust.credentials import FLEET, Credentials, load_credentials, recover

LOOPBACK_URL = "mqtt://127.0.0.1:1883"

COORDINATOR = ("coordinator",)
CLIENT = ("operator.*", "viewer.*", "coordinator")
"""The parties that a command or dashboard may use; the first with credentials here counts."""


def trust_folder(settings: FleetSettings) -> Path:
    """Return the folder of this machine's certificates of its fleet."""
    return settings.state / "trust" / settings.fleet


def broker_address(
    settings: FleetSettings, users: Sequence[str] = CLIENT, clock: Clock | None = None
) -> Address:
    """Return the address of the fleet's broker, with the credentials to use.

    Args:
        settings: the program's.
        users: names of certificates, or patterns of them, that it may use; the first match counts.
        clock: for the validity of certificates; the system's by default.

    Raises:
        UsageError: the broker setting is not an address.
        NotAllowedError: ``trust.missing``, ``broker.insecure``, or a problem of the credentials.
    """
    folder = credentials_folder(trust_folder(settings), users)
    url = settings.broker
    if url is not None and not parse_address(url).tls:
        return _plain(parse_address(url), settings)
    if folder is None:
        if url is None:
            return parse_address(LOOPBACK_URL)
        raise _missing(parse_address(url), settings)
    own = load(folder, clock)
    return replace(parse_address(url or own.broker), credentials=own)


def load(folder: Path, clock: Clock | None = None) -> Credentials:
    """Return the credentials in a folder, valid now; errors as ``load_credentials`` has them."""
    return load_credentials(folder, (clock or SystemClock()).now())


def credentials_folder(trust: Path, users: Sequence[str]) -> Path | None:
    """Return the folder of the first of these parties that this machine has credentials of."""
    for user in users:
        for hidden in sorted(trust.glob(f".{user}.old")):
            recover(hidden.with_name(hidden.name[1:].removesuffix(".old")))
        for folder in sorted(trust.glob(user)):
            if (folder / FLEET).is_file():
                return folder
    return None


def listen_address(settings: FleetSettings) -> Address:
    """Return where a broker without TLS listens that this machine starts.

    Raises:
        UsageError: the broker setting is no address.
    """
    return parse_address(settings.broker or LOOPBACK_URL)


def _plain(address: Address, settings: FleetSettings) -> Address:
    if address.is_loopback or settings.insecure:
        return address
    raise NotAllowedError(
        f"{address} is on another machine, and the connection would not be encrypted.",
        code="broker.insecure",
        hint="enrol this machine and use mqtts:// (docs/getting-started.md); in a network that "
        "you trust, --insecure",
    )


def _missing(address: Address, settings: FleetSettings) -> NotAllowedError:
    return NotAllowedError(
        f"This machine has no credentials for fleet {settings.fleet} at {address}.",
        code="trust.missing",
        hint="on the coordinator's machine: edgefed init; on a device: edgefed-agent enroll TOKEN",
    )
