"""``edgefed ui --web``: serve the dashboard to browsers of this machine."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import sys
from collections.abc import Sequence

from broker.child_process import ending_with_parent
from edgefed.cli.context import Globals
from edgefed.cli.web_address import listening_socket, url_of
from edgefed.config.address import Address
from edgefed.console import talk
from edgefed.optional import wanted

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
    from edgefed.cli.web_server import WebServer, serve

    secret = secrets.token_urlsafe(16)
    url = f"{url_of(address)}/{secret}/"
    server = WebServer(dashboard_command(options, words), title, secret)
    serve(server, listening_socket(address), lambda: _announce(url, options))


def dashboard_command(options: Globals, words: Sequence[str]) -> str:
    """Return the shell command of one dashboard, which ends when this process does.

    A terminal sends Ctrl-C to all processes, and only this one may tell of it.
    """
    edgefed = [sys.executable, "-c", _START, *options.words(), "ui", *words]
    return f"trap '' INT; exec {shlex.join(ending_with_parent(edgefed, signal.SIGTERM))}"


def _announce(url: str, options: Globals) -> None:
    options.answer({"url": url, "pid": os.getpid()}, url)
    if not options.quiet:
        talk("Open it in a browser of this machine; each tab is a dashboard of its own.")
        talk("The address contains a secret: do not share it. Ctrl-C ends the server; runs go on.")
