"""A Mosquitto with the secured configuration for a fleet whose authority is in memory."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from broker.address import LOOPBACK
from broker.secured_broker import SecuredBroker
from broker.secured_files import write_access
from edgefed.config.address import Address
from edgefed.trust.issuing import make_revocations
from tests.signed_fleet import LIFE, Trust


def secured_broker(
    folder: Path, trust: Trust, users: Iterable[str], program: Path | None = None
) -> SecuredBroker:
    """Start the broker that a fleet has: TLS, and what each certificate may do.

    Args:
        folder: of its configuration, log and database.
        trust: makes its certificate, once; it listens on the port of it and the next two.
        users: common names of all who may connect.
        program: the Mosquitto program; searched for when left out.
    """
    if not (trust.folder / "broker").exists():
        trust.issue("broker")
    now = datetime.now(timezone.utc)
    revoked = make_revocations(trust.authority, trust.key, [], now, LIFE)
    files = write_access(trust.folder, trust.fleet, users, revoked)
    address = Address(LOOPBACK, trust.port, tls=True)
    return SecuredBroker(address, folder, files, program=program)
