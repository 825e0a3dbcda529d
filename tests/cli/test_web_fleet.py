"""Dashboards in browsers of a real fleet: they give orders, and closing a tab stops no run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.address import LOOPBACK, free_port
from broker.embedded import EmbeddedBroker
from edgefed.config.values.address import Address
from tests.cli.conftest import FLEET, SmallFleet
from tests.cli.web_server import served, tab, until_gone


def common(url: str, state: Path) -> tuple[str, ...]:
    return ("--broker", url, "--fleet", FLEET, "--state", str(state))


@pytest.mark.mosquitto
def test_a_tab_gives_orders_and_the_run_outlives_it(fleet: SmallFleet, tmp_path: Path) -> None:
    run = fleet.begin("--rounds", "100000", "--paused")

    async def pause() -> None:
        async with tab(server) as page:
            await page.shows("PAUSED")
            await page.press("p")
            await page.shows("RUNNING")
            await page.press("p")
            await page.shows("PAUSED")
            processes = server.dashboards()
        await until_gone(processes)

    async def only_watch() -> None:
        async with tab(reader) as page:
            await page.shows("PAUSED")
            await page.press("p")
            await page.shows("read-only")

    try:
        with served(common=common(fleet.url, tmp_path)) as server:
            asyncio.run(pause())
        assert fleet.show(run)["status"] == "paused"
        with served("--read-only", common=common(fleet.url, tmp_path)) as reader:
            asyncio.run(only_watch())
        assert fleet.show(run)["status"] == "paused"
    finally:
        fleet("run", "abort", run, "--yes")
        fleet.wait_for(run, "aborted")


def test_a_page_says_why_there_is_no_dashboard_and_stays(tmp_path: Path) -> None:
    pytest.importorskip("amqtt", reason="the demo broker is not installed")
    address = Address(LOOPBACK, free_port())

    async def scenario() -> None:
        async with tab(server) as page:
            await page.shows("[broker.unreachable]")
            processes = server.dashboards()
            await page.press("\x11")
            await page.ended()
        await until_gone(processes)

    broker = EmbeddedBroker(address, tmp_path / "embedded")
    with broker, served(common=common(str(address), tmp_path)) as server:
        broker.stop()
        asyncio.run(scenario())
        code, out, err = server.end(15)
    assert (code, out) == (0, "")
    assert len(err.splitlines()) == 2, "the server says nothing of it"
