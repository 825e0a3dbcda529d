"""A real ``edgefed ui --web``, and connections to it as a browser's tab makes them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import psutil
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from broker.address import free_port
from tests.processes import outcome, start_python

PATIENCE = 60.0
"""Seconds after which a wait has failed."""


class Served:
    """A server that has said its address.

    Args:
        process: its process.
        url: the address that it printed.
    """

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    @property
    def origin(self) -> str:
        """The address without its path."""
        return "/".join(self.url.split("/")[:3])

    @property
    def websocket(self) -> str:
        """Where a tab connects."""
        return f"{self.url.replace('http', 'ws', 1)}ws?width=120&height=36"

    def dashboards(self) -> list[psutil.Process]:
        """Return the processes of the open tabs."""
        return psutil.Process(self.process.pid).children()  # type: ignore[no-any-return]

    def end(self, number: int) -> tuple[int, str, str]:
        """Send a signal; return the exit code and what stdout and stderr said after the address."""
        self.process.send_signal(number)
        return outcome(self.process)


@contextmanager
def served(
    *words: str, common: tuple[str, ...] = (), environment: Mapping[str, str] | None = None
) -> Iterator[Served]:
    """Run ``edgefed ui --web`` on a free port inside the block."""
    web = ("ui", "--web", "--port", str(free_port()))
    program = ("-m", "edgefed.cli.main")  # its dashboards are its child processes
    process = start_python(*program, *common, *web, *words, environment=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, outcome(process)
    url = json.loads(line)["url"] if "--json" in (*common, *words) else line.strip()
    try:
        yield Served(process, url)
    finally:
        process.kill()
        process.communicate()


class Tab:
    """What a page of textual-serve sends and receives.

    Args:
        socket: its connection.
    """

    def __init__(self, socket: ClientWebSocketResponse[bool]) -> None:
        self._socket = socket
        self._said = ""
        self._files: list[str] = []

    async def press(self, text: str) -> None:
        """Type a text."""
        await self._socket.send_json(["stdin", text])

    async def shows(self, text: str) -> None:
        """Wait until the dashboard has drawn a text since the last call."""
        while text not in self._said:
            assert await self._read(), f"{text!r} is not in {self._said!r}"
        self._said = ""

    async def delivered(self) -> str:
        """Wait until the dashboard offers a file, and return its name on the server."""
        while not self._files:
            assert await self._read()
        return self._files.pop()

    async def ended(self) -> None:
        """Wait until the server closes the connection."""
        while await self._read():
            pass

    async def _read(self) -> bool:
        message = await asyncio.wait_for(self._socket.receive(), PATIENCE)
        if message.type is WSMsgType.BINARY:
            self._said += message.data.decode(errors="replace")
        if message.type is WSMsgType.TEXT and message.json()[0] == "deliver_file_start":
            self._files.append(message.json()[1])
        return message.type in (WSMsgType.BINARY, WSMsgType.TEXT)


@asynccontextmanager
async def tab(server: Served, headers: Mapping[str, str] | None = None) -> AsyncIterator[Tab]:
    """Open a dashboard and close it at the end of the block."""
    async with (
        ClientSession() as http,
        http.ws_connect(server.websocket, headers=headers) as socket,
    ):
        yield Tab(socket)


async def until_gone(processes: list[psutil.Process]) -> None:
    """Wait until processes have ended."""
    ends = time.monotonic() + PATIENCE
    while [each for each in processes if each.is_running() and each.status() != "zombie"]:
        assert time.monotonic() < ends, processes
        await asyncio.sleep(0.05)
