"""``edgefed ui --web`` serves dashboards to its own pages only, and ends them all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, WSServerHandshakeError

from edgefed.cli.common.context import Globals
from edgefed.cli.programs.web_dashboard import dashboard_command
from tests.cli.web_server import Served, Tab, served, tab, until_gone
from tests.tui.recorded_fleet import RUN, record

OTHER_PAGES = (
    {"Host": "evil.example:8000"},
    {"Origin": "http://evil.example"},
)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recorded") / "it's one.jsonl")


@pytest.fixture(scope="module")
def shared_server(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    state = ("--state", str(tmp_path_factory.mktemp("its state")))
    with served("--replay", str(recording), "--speed", "max", common=state) as started:
        yield started


@pytest.fixture
def server(shared_server: Served) -> Iterator[Served]:
    """A server without tabs, all of whose tabs end after the test."""
    yield shared_server
    asyncio.run(until_gone(shared_server.dashboards()))


async def _get(url: str, headers: dict[str, str] | None = None) -> tuple[int, str, dict[str, str]]:
    async with ClientSession() as http, http.get(url, headers=headers) as told:
        return told.status, await told.text(), dict(told.headers)


def get(url: str, headers: dict[str, str] | None = None) -> tuple[int, str, dict[str, str]]:
    """Return status, text and headers of an answer."""
    return asyncio.run(_get(url, headers))


@pytest.mark.slow
def test_tabs_draw_take_keys_give_a_screenshot_and_end_with_their_processes(
    server: Served, recording: Path
) -> None:
    """Its dashboard has the options of the server; one that hangs is killed after its tab."""
    options = ("ui", "--replay", str(recording), "--speed", "max")

    async def scenario() -> None:
        async with tab(server) as first, tab(server) as second:
            await first.shows("The recording is over")
            await first.press("2")
            await first.shows("Devices 40")
            await second.shows("The recording is over")
            processes = server.dashboards()
            assert len(processes) == 2
            words = [str(word) for word in processes[0].cmdline()]
            assert words[3] == "--state"
            assert words[4].endswith("its state0")
            assert words[5:] == [*options, "--round", "1", "--no-ascii"]
            await first.press("\x11")
            await first.ended()
            await second.press("3")
            await second.shows("Confusion")
            await _takes_a_screenshot(server, second)
            (hanging,) = server.dashboards()
            hanging.suspend()
        await until_gone(processes)

    asyncio.run(scenario())


async def _takes_a_screenshot(server: Served, page: Tab) -> None:
    """It is opened by the page, once, and by no other page."""
    await page.press("\x10")
    await page.press("screens")
    await page.shows("Save an SVG")
    await page.press("\r")
    url = f"{server.origin}/download/{await page.delivered()}"
    reading = asyncio.create_task(page.delivered())
    status, text, headers = await _get(url)
    reading.cancel()
    assert (status, headers["Content-Type"]) == (200, "image/svg+xml; charset=utf-8")
    assert text.startswith("<svg") and RUN in text
    assert (await _get(url, {"Origin": "http://evil.example"}))[0] == 403
    assert (await _get(url))[0] == 404


def test_modules_of_the_current_folder_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('it was imported')")
    command = dashboard_command(Globals(), ["--help"])
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Open the dashboard." in done.stdout


@pytest.mark.parametrize("headers", OTHER_PAGES, ids=str)
def test_other_pages_are_refused(server: Served, headers: dict[str, str]) -> None:
    async def connect() -> int:
        with pytest.raises(WSServerHandshakeError) as refused:
            async with tab(server, headers):
                pass
        return refused.value.status

    assert get(server.url, headers)[0] == 403
    assert asyncio.run(connect()) == 403
    assert server.dashboards() == []


def test_nobody_gets_in_without_the_whole_address(server: Served) -> None:
    for path in ("/", "/ws", "/static/js/textual.js", f"/{'x' * 22}/", f"/{'x' * 22}/ws"):
        status, text, _ = get(f"{server.origin}{path}")
        assert (status, text) == (404, "Open the whole address that edgefed ui --web printed.\n")
    assert len(server.url.split("/")[3]) >= 22
    assert get(server.url)[0] == 200


def test_an_address_without_its_last_slash_leads_to_the_page(server: Served) -> None:
    assert get(server.url.rstrip("/"))[:2] == get(server.url)[:2]


def test_the_page_names_the_address_that_the_browser_uses(server: Served) -> None:
    """A tunnel's port may be another one, and a browser may take localhost for another host."""
    path = server.url.removeprefix(server.origin)
    for host in ("localhost:9000", "127.0.0.1:9000", "[::1]:9000", "127.0.0.1"):
        status, page, headers = get(server.url, {"Host": host, "Origin": f"http://{host}"})
        assert status == 200
        assert f'data-session-websocket-url="ws://{host}{path}ws"' in page
        assert f"http://{host}{path}static/js/textual.js" in page
        assert f"connect-src 'self' ws://{host};" in headers["Content-Security-Policy"]


def test_the_page_loads_nothing_from_other_machines_and_is_in_no_frame(server: Served) -> None:
    status, page, headers = get(server.url)
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert status == 200
    assert "<title>EdgeFed replay</title>" in page
    assert policy["default-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert not [name for name, value in policy.items() if "http" in value or "*" in value]
    assert headers["Referrer-Policy"] == "no-referrer"


def test_a_signal_ends_the_server_and_all_dashboards(recording: Path) -> None:
    """A page is told when its dashboard is killed, and what that says on stderr is said there."""

    async def scenario() -> None:
        with served("--replay", str(recording), environment={"PYTHONFAULTHANDLER": "1"}) as server:
            async with tab(server) as killed:
                await killed.shows("REPLAY")
                server.dashboards()[0].send_signal(signal.SIGABRT)
                await killed.ended()
            async with tab(server) as page:
                await page.shows("REPLAY")
                processes = server.dashboards()
                ended, _ = await asyncio.gather(
                    asyncio.to_thread(server.end, signal.SIGTERM), page.ended()
                )
            await until_gone(processes)
            assert ended[:2] == (0, "")
            assert "Ctrl-C ends the server" in ended[2]
            assert ended[2].count("Fatal Python error: Aborted") == ended[2].count("error") == 1
            assert "Traceback" not in ended[2]

    asyncio.run(scenario())


def test_ctrl_c_in_a_terminal_ends_dashboards_that_start_without_a_word(
    recording: Path, server: Served
) -> None:
    async def scenario() -> None:
        with served("--replay", str(recording), "--json", common=("--quiet",)) as own:
            assert own.url.startswith("http://127.0.0.1:")
            assert own.url.split("/")[3] != server.url.split("/")[3], "the secret is a new one"
            async with tab(own) as page:
                while not (processes := own.dashboards()):
                    await asyncio.sleep(0.01)
                (dashboard,) = processes
                while "-c" not in dashboard.cmdline()[:2]:
                    await asyncio.sleep(0.01)
                dashboard.send_signal(signal.SIGINT)
                (code, out, err), _ = await asyncio.gather(
                    asyncio.to_thread(own.end, signal.SIGINT), page.ended()
                )
            await until_gone(processes)
            assert (code, out) == (130, "")
            assert json.loads(err)["error"]["code"] == "interrupted"

    asyncio.run(scenario())


def test_a_dashboard_does_not_outlive_a_killed_server(shared_server: Served) -> None:
    """The last test of this server."""

    async def scenario() -> None:
        async with tab(shared_server) as page:
            await page.shows("REPLAY")
            processes = shared_server.dashboards()
            os.kill(shared_server.process.pid, signal.SIGKILL)
            await until_gone(processes)

    asyncio.run(scenario())
