"""Serve the dashboard to browsers with textual-serve: each tab has a process of its own."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout, suppress
from copy import copy
from functools import partial
from html import escape

from aiohttp import web
from textual_serve.app_service import AppService
from textual_serve.server import Server, to_int

from edgefed.config.values.address import Address
from edgefed.errors import InterruptedRunError
from edgefed.process.stop_signals import stop_signals

PATIENCE = 5.0
"""Seconds that a dashboard has to end by itself."""

_LOOK_EVERY = 0.05


class WebSession(AppService):
    """One process and its connection to a browser."""

    async def run(self) -> None:
        """Show the output of the process until it ends, then notify the page."""
        await super().run()
        await self.remote_close()

    async def stop(self) -> None:
        """Ask the dashboard to close, and kill one that does not end."""
        ends = time.monotonic() + PATIENCE
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(super().stop(), PATIENCE)
        process = self._process
        while process is not None and process.returncode is None and time.monotonic() < ends:
            await asyncio.sleep(_LOOK_EVERY)
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()


ELSEWHERE = "Open the whole address that edgefed ui --web printed.\n"
"""The answer to a request without the server's secret."""

_TYPE_AT_ONCE = """<script>
addEventListener("load", () => document.querySelector(".xterm-helper-textarea")?.focus());
</script>"""
"""Without it, keys have no effect until the user clicks into the page."""


class WebServer(Server):
    """The dashboard under a secret path.

    Other users of this machine reach its loopback address, too, and a dashboard can give orders.

    Args:
        command: the shell command of one dashboard.
        title: for the browser's tab.
        secret: the first part of the path.
    """

    def __init__(self, command: str, title: str, secret: str) -> None:
        super().__init__(command, title=title)
        self._secret = secret
        self._tabs: set[asyncio.Task[object]] = set()

    async def application(self) -> web.Application:
        """Return the application to run."""
        whole = web.Application(middlewares=[_guard])
        whole.on_response_prepare.append(_add_headers)
        whole.router.add_get(f"/{self._secret}", self._add_slash)
        whole.add_subapp(f"/{self._secret}", await self._make_app())
        # The page asks for downloads without the secret; each has a random name.
        whole.router.add_get("/download/{key}", self.handle_download)
        return whole

    async def _add_slash(self, request: web.Request) -> web.StreamResponse:
        """Send a browser to the page whose address was copied without its last character."""
        raise web.HTTPFound(f"{request.path}/")

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing."""

    async def on_shutdown(self, app: web.Application) -> None:
        """End the dashboards of all tabs."""
        for task in self._tabs:
            task.cancel()
        if self._tabs:
            await asyncio.wait(self._tabs)

    async def handle_index(self, request: web.Request) -> web.StreamResponse:
        """Return the page, whose addresses are those that the browser uses: a tunnel's port."""
        page = copy(self)
        page.public_url = f"http://{request.host}"
        response = await Server.handle_index(page, request)
        assert isinstance(response, web.Response)
        added = f"<title>{escape(self.title)}</title>{_TYPE_AT_ONCE}</head>"
        response.text = (response.text or "").replace("</head>", added, 1)
        return response

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Start a dashboard and show it until it or its tab is closed."""
        tab = asyncio.current_task()
        assert tab is not None
        self._tabs.add(tab)
        websocket = web.WebSocketResponse(heartbeat=15)
        try:
            await websocket.prepare(request)
            await self._show(request, websocket)
        finally:
            self._tabs.discard(tab)
        return websocket

    async def _show(self, request: web.Request, websocket: web.WebSocketResponse) -> None:
        async def close() -> None:
            await websocket.close()

        session = WebSession(
            self.command,
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=close,
            download_manager=self.download_manager,
        )
        width, height = (request.query.get(name, "") for name in ("width", "height"))
        try:
            await session.start(to_int(width, 80), to_int(height, 24))
            with suppress(ConnectionError):
                await self._process_messages(websocket, session)
        finally:
            await session.stop()


def serve(server: WebServer, listener: socket.socket, announce: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        server: to run.
        listener: its socket.
        announce: called once browsers can connect.

    Raises:
        InterruptedRunError: it was Ctrl-C.
    """
    with stop_signals() as signals:
        asyncio.run(_serve(server, listener, announce, signals.call))
    if signals.number == signal.SIGINT:
        raise InterruptedRunError("Interrupted.")


async def _serve(
    server: WebServer,
    listener: socket.socket,
    announce: Callable[[], None],
    on_signal: Callable[[Callable[[], None]], None],
) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    on_signal(partial(_set, loop, ended))
    runner = web.AppRunner(await server.application(), access_log=None, shutdown_timeout=PATIENCE)
    await runner.setup()
    # textual-serve prints on stdout what an ended dashboard has said on stderr.
    on_stderr = redirect_stdout(sys.stderr)
    try:
        await web.SockSite(runner, listener).start()
        announce()
        with on_stderr:
            await ended.wait()
    finally:
        with on_stderr:
            await runner.cleanup()


def _set(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Set an event from another thread."""
    loop.call_soon_threadsafe(ended.set)


@web.middleware
async def _guard(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Refuse requests of other machines and of other pages."""
    reason = refusal(request.host, request.headers.get("Origin"))
    if reason:
        return web.Response(status=403, text=f"{reason}\n")
    try:
        return await handler(request)
    except web.HTTPNotFound:
        return web.Response(status=404, text=ELSEWHERE)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(security_headers(request.host))


_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9.-]+))(?::[0-9]{1,5})?", re.ASCII)


def refusal(host: str, origin: str | None) -> str:
    """Return why a request is refused, or an empty text.

    Args:
        host: the server's name in the browser, from the header ``Host``. Its port is ignored,
            because an SSH tunnel may have another one.
        origin: the page that sends the request, from the header ``Origin``; None without one, as
            for an address that the user typed.
    """
    if not _is_loopback(host):
        return "The dashboard is served to browsers of this machine only."
    if origin is not None and origin != f"http://{host}":
        return "The dashboard takes no requests of other pages."
    return ""


def security_headers(host: str) -> dict[str, str]:
    """Return the headers of every response to a request to ``host``.

    They keep the page from loading anything from other machines, such as the web fonts that
    textual-serve names, and other pages from showing it in a frame.
    """
    policy = {
        "default-src": "'self'",
        "script-src": "'self' 'unsafe-inline'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data:",
        "connect-src": f"'self' ws://{host}",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _is_loopback(host: str) -> bool:
    match = _HOST.fullmatch(host.lower())
    return match is not None and Address(match[1] or match[2]).is_loopback
