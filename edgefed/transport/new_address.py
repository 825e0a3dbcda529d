"""Change the broker's address that the credentials of a party name, after the fleet has moved."""

from __future__ import annotations

import secrets
from dataclasses import replace

from edgefed.config.values.address import Address, parse_address
from edgefed.errors import UsageError
from edgefed.transport.link import Link
from edgefed.trust.credentials import Credentials, set_broker

CONNECT_TIMEOUT = 5.0


def save_new_address(own: Credentials, url: str, *, check: bool) -> Address:
    """Write the broker's new address into a party's credentials, and return it.

    Args:
        own: the credentials.
        url: the address, ``mqtts://HOST:PORT``.
        check: whether the fleet's broker must answer there.

    Raises:
        UsageError: ``broker.address``, ``broker.tls``: it is not an address of a broker with TLS.
        UnreachableError: no broker of this fleet answers there; nothing was changed.
        StorageError: the disk does not take it.
    """
    address = parse_address(url)
    if not address.tls:
        raise UsageError(
            f"{address} is an address without TLS.",
            code="broker.tls",
            hint="the credentials of a fleet are for mqtts://HOST:PORT",
        )
    if check:
        there = replace(address, credentials=own).for_commands()
        link = Link(there, f"edgefed-address-{secrets.token_hex(4)}", lambda _: None)
        link.start_now(CONNECT_TIMEOUT)
        link.stop()
    set_broker(own.folder, str(address))
    return address
