"""The loopback address at which browsers find the dashboard."""

from __future__ import annotations

import errno
import socket

from broker.address import LOOPBACK, bind_host, parse_bind
from edgefed.config.address import Address
from edgefed.errors import UsageError

DEFAULT_PORT = 8000


def web_address(bind: str | None, port: int | None) -> Address:
    """Return the address of ``--bind`` and ``--port``.

    Raises:
        UsageError: it is not an address, names two ports, or other machines could reach it.
    """
    host, own = _parsed(bind) if bind else (LOOPBACK, None)
    if own and port and own != port:
        raise UsageError(f"--bind {bind} and --port {port} name two ports.", hint="leave one out")
    address = Address(host, own or port or DEFAULT_PORT)
    if not address.is_loopback:
        tunnel = f"{address.port}:{LOOPBACK}:{address.port}"
        raise UsageError(
            f"--bind {bind}: the dashboard is served on this machine's loopback address only, "
            "because it can give orders.",
            code="web.bind",
            hint="leave --bind out, and where the browser is, run: "
            f"ssh -L {tunnel} {socket.gethostname()}",
        )
    return address


def url_of(address: Address) -> str:
    """Return the address as a browser takes it, without a path."""
    return f"http{str(address).removeprefix(address.scheme)}"


def listening_socket(address: Address) -> socket.socket:
    """Return a socket that listens on the address.

    Raises:
        UsageError: another program listens there, or this user may not.
    """
    host = bind_host(address)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        # Connections of a server that has just ended do not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, address.port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise _unavailable(address, error) from error
    return listener


def _parsed(bind: str) -> tuple[str, int | None]:
    try:
        return parse_bind(bind)
    except UsageError as error:
        raise UsageError(
            error.message,
            code="web.bind",
            hint="write it as HOST or HOST:PORT, such as --bind 127.0.0.1:8001",
        ) from error


def _unavailable(address: Address, error: OSError) -> UsageError:
    if error.errno == errno.EADDRINUSE:
        return UsageError(
            f"Port {address.port} on {address.host} is in use by another program.",
            code="web.port_in_use",
            hint="choose another with --port, or find the program: "
            f"ss -ltnp 'sport = :{address.port}'",
        )
    return UsageError(
        f"Cannot listen on {url_of(address)}: {error.strerror or type(error).__name__}.",
        code="web.bind",
        hint="leave --bind out, or choose a port from 1024 on with --port",
    )
