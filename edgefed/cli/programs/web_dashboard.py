"""``edgefed ui --web``: serve the dashboard to browsers at a loopback address of this machine."""

from __future__ import annotations

import errno
import os
import secrets
import shlex
import signal
import socket
import sys
from collections.abc import Sequence

from broker.address import LOOPBACK, bind_host, parse_bind
from broker.child_process import ending_with_parent
from edgefed.cli.common.context import Globals
from edgefed.config.values.address import Address
from edgefed.errors import UsageError
from edgefed.files.optional import wanted
from edgefed.terminal.console import talk

_START = """
import sys
sys.path[:] = [folder for folder in sys.path if folder]
from edgefed.cli.entry import main
main()
"""
"""Starts a dashboard without modules of the current folder, as the command ``edgefed`` does.

``python -m`` would import them.
"""


def serve_dashboard(
    options: Globals, words: Sequence[str], address: Address, *, title: str
) -> None:
    """Serve the dashboard until SIGTERM or Ctrl-C.

    Args:
        options: the common options, which every dashboard has too.
        words: the options of ``edgefed ui`` for a dashboard.
        address: where to listen.
        title: for the browser's tab.

    Raises:
        UsageError: textual-serve is not installed, or it cannot listen there.
        InterruptedRunError: Ctrl-C ended it.
    """
    wanted("textual_serve", "web", code="web.missing", package="textual-serve")
    from edgefed.cli.programs.web_server import WebServer, serve

    secret = secrets.token_urlsafe(16)
    url = f"{url_of(address)}/{secret}/"
    server = WebServer(dashboard_command(options, words), title, secret)
    serve(server, listening_socket(address), lambda: _announce(url, options))


def dashboard_command(options: Globals, words: Sequence[str]) -> str:
    """Return the shell command of one dashboard, which ends when this process does.

    A terminal sends Ctrl-C to all processes, and only this one may report it.
    """
    edgefed = [sys.executable, "-c", _START, *options.words(), "ui", *words]
    return f"trap '' INT; exec {shlex.join(ending_with_parent(edgefed, signal.SIGTERM))}"


def _announce(url: str, options: Globals) -> None:
    options.answer({"url": url, "pid": os.getpid()}, url)
    if not options.quiet:
        talk("Open it in a browser of this machine; each tab is a dashboard of its own.")
        talk("The address contains a secret: do not share it. Ctrl-C ends the server; runs go on.")


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
