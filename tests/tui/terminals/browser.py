"""Debian's headless Chromium with pages that tests read and type into, by its DevTools protocol.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse

PATIENCE = 60.0
"""Seconds after which a wait has failed."""

_PROGRAMS = ("chromium-headless-shell", "chromium")
CHROMIUM = next(filter(None, map(shutil.which, _PROGRAMS)), None)

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

_FIND_TERMINAL = """
Object.defineProperty(Object.prototype, "fitAddon", {configurable: true, set(addon) {
    window.shown = this.terminal;
    Object.defineProperty(this, "fitAddon", {value: addon, writable: true});
}});
"""
"""textual-serve keeps xterm.js's terminal to itself; this takes it when its page assigns to it."""

_NOTE_BLOCKED = """
window.blocked = [];
addEventListener("securitypolicyviolation", event => window.blocked.push(event.blockedURI));
"""

_REQUESTED = """
performance.getEntriesByType("resource").map(entry => entry.name)
    .filter(name => !window.blocked.includes(name)).join(" ")
"""

_LINES = """
(() => {
    if (!window.shown) return "";
    const buffer = window.shown.buffer.active;
    return Array.from({length: window.shown.rows}, (_, row) =>
        buffer.getLine(buffer.viewportY + row).translateToString(true)).join("\\n");
})()
"""


class Page:
    """A tab of the browser.

    Args:
        socket: its DevTools connection.
    """

    def __init__(self, socket: ClientWebSocketResponse[bool]) -> None:
        self._socket = socket
        self._number = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return what a method of the DevTools protocol answers."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            told = json.loads((await self._socket.receive(PATIENCE)).data)
            if told.get("id") == self._number:
                assert "error" not in told, told
                return dict(told["result"])

    async def open(self, url: str) -> None:
        """Go to an address, which may use the clipboard; nobody is there to be asked."""
        allowed = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        await self.call("Browser.grantPermissions", permissions=allowed)
        for script in (_FIND_TERMINAL, _NOTE_BLOCKED):
            await self.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        await self.call("Page.navigate", url=url)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        told = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def press(self, key: str, *, code: int = 0, ctrl: bool = False) -> None:
        """Press a key; its code is by default that of its character."""
        named = {"key": key, "windowsVirtualKeyCode": code or ord(key.upper())}
        down = {"type": "rawKeyDown"} if ctrl or code else {"type": "keyDown", "text": key}
        for event in (down, {"type": "keyUp"}):
            await self.call("Input.dispatchKeyEvent", **named, **event, modifiers=2 * ctrl)

    async def until(self, condition: Callable[[str], object]) -> str:
        """Wait until the terminal's text fulfils a condition, and return it."""
        return await self._awaited(_LINES, condition)

    async def shows(self, *parts: str) -> str:
        """Wait until all parts are in the terminal, and return its text."""
        return await self.until(lambda text: all(part in text for part in parts))

    async def clipboard(self) -> str:
        """Wait until something was copied, and return it."""
        return await self._awaited("navigator.clipboard.readText()", bool)

    async def requested(self) -> list[str]:
        """Return the addresses of what the page has loaded, or tried to load and was let."""
        return str(await self.evaluate(_REQUESTED)).split()

    async def picture(self) -> bytes:
        """Return the page as a PNG file."""
        told = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(told["data"])

    async def _awaited(self, expression: str, condition: Callable[[str], object]) -> str:
        ends = time.monotonic() + PATIENCE
        while True:
            text = str(await self.evaluate(expression))
            if condition(text):
                return text
            assert time.monotonic() < ends, f"the page never was as awaited:\n{text}"
            await asyncio.sleep(0.25)


class Browser:
    """A running Chromium.

    Args:
        http: makes connections.
        address: where its DevTools listen.
    """

    def __init__(self, http: ClientSession, address: str) -> None:
        self._http = http
        self._address = address

    async def page(self) -> Page:
        """Open an empty tab."""
        async with self._http.put(f"{self._address}/json/new?about:blank") as told:
            target = await told.json(content_type=None)
        socket = await self._http.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=2**26)
        page = Page(socket)
        await page.call("Page.enable")
        return page


@asynccontextmanager
async def chromium(folder: Path, *, width: int = 1200, height: int = 760) -> AsyncIterator[Browser]:
    """Run a browser that reaches only this machine, as root may too, inside the block."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    command += ["--disable-extensions", "--disable-background-networking", "--disable-sync"]
    command += [f"--user-data-dir={folder}", f"--window-size={width},{height}"]
    process = subprocess.Popen(
        [*command, "--remote-debugging-port=0", "about:blank"],
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the program is a shell script that starts others
    )
    try:
        port = await _port(folder / "DevToolsActivePort")
        async with ClientSession() as http:
            yield Browser(http, f"http://127.0.0.1:{port}")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def _port(path: Path) -> int:
    ends = time.monotonic() + PATIENCE
    while not (path.exists() and "\n" in path.read_text()):
        assert time.monotonic() < ends, "Chromium does not start"
        await asyncio.sleep(0.05)
    return int(path.read_text().split()[0])
