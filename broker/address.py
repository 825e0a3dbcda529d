"""Ports to listen on: find a free one, and explain why one is unavailable."""

from __future__ import annotations

import errno
import re
import socket
from ipaddress import ip_address

from edgefed.config.values.address import Address
from edgefed.errors import UsageError

LOOPBACK = "127.0.0.1"


def bind_host(address: Address) -> str:
    """Return the address to listen on: for localhost 127.0.0.1, since ::1 may be missing."""
    return LOOPBACK if address.host == "localhost" else address.host


def parse_bind(text: str) -> tuple[str, int | None]:
    """Return the host and, where it is named, the port of ``HOST[:PORT]``.

    An IPv6 address stands alone, or in brackets before a port.

    Raises:
        UsageError: it is not an address.
    """
    if _is_ip(text):
        return text, None
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([\w.-]+))(?::([0-9]{1,5}))?", text, re.ASCII)
    host = (match[1] or match[2]) if match else ""
    port = int(match[3]) if match and match[3] else None
    if not host or (match and match[1] and not _is_ip(host)) or port == 0 or (port or 0) > 65535:
        raise UsageError(
            f"--bind {text}: this is not an address to listen on.",
            code="broker.bind",
            hint="write it as HOST or HOST:PORT, such as --bind 0.0.0.0 or --bind 127.0.0.1:1883",
        )
    return host, port


def connect_host(address: Address) -> str:
    """Return the host for clients on this machine, also if every address is listened on."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(address.host, bind_host(address))


def free_port(host: str = LOOPBACK) -> int:
    """Return a TCP port of ``host`` that is free at the moment."""
    with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def free_ports(count: int = 3) -> int:
    """Return a free port of this machine, with free ports after it for a broker with TLS."""
    while True:
        first = free_port()
        more = range(first + 1, first + count)
        if first + count <= 65536 and all(port_is_free(Address(LOOPBACK, port)) for port in more):
            return first


def port_is_free(address: Address) -> bool:
    """Whether this machine can listen on the address now."""
    return _bind_error(address) is None


def require_free(address: Address) -> None:
    """Check that this machine can listen on the address.

    Raises:
        UsageError: another program listens there, or the address is not this machine's.
    """
    error = _bind_error(address)
    if error is None:
        return
    if error.errno == errno.EADDRINUSE:
        raise port_in_use(address)
    raise UsageError(
        f"Cannot listen on {address}: {error.strerror or type(error).__name__}.",
        code="broker.bind",
        hint="--bind takes an address of this machine, --port one that you may open",
    )


def port_in_use(address: Address) -> UsageError:
    """Return the error, with advice, for a port that another program uses.

    The ports of a broker with TLS are part of the fleet's credentials and tokens, so they change
    with the fleet's address.
    """
    another = "change the fleet's address: edgefed broker address --port PORT"
    another = another if address.tls else "choose another with --port"
    return UsageError(
        f"Port {address.port} on {address.host} is in use by another program.",
        code="broker.port_in_use",
        hint=f"{another}, or find the program: ss -ltnp 'sport = :{address.port}'",
    )


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _bind_error(address: Address) -> OSError | None:
    host = bind_host(address)
    try:
        with socket.socket(_family(host), socket.SOCK_STREAM) as probe:
            # As the brokers do, so that connections of a broker that just ended do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, address.port))
    except OSError as error:
        return error
    return None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
