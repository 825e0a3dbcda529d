"""The dashboard in a real browser: drawn on the page, and used by its keys."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.web_server import Served, served, until_gone
from tests.tui.recorded_fleet import RUN, record
from tests.tui.terminals.browser import Page, chromium, needs_chromium

pytestmark = [pytest.mark.slow, needs_chromium]


def test_a_recording_in_a_browser(tmp_path: Path) -> None:
    """It is drawn, keys work at once, ids are copied, and a key ends its process."""
    path = record(tmp_path / "events.jsonl")

    async def scenario() -> None:
        async with chromium(tmp_path / "profile") as browser:
            page = await browser.page()
            await _look(page, server)
            await _use(page)
            await _quit(page, server)

    with served("--replay", str(path), "--speed", "max") as server:
        asyncio.run(scenario())


async def _look(page: Page, server: Served) -> None:
    await page.open(server.url)
    overview = await page.shows(RUN, "The recording is over", "Attention 9")
    assert "╭─ Round 13 ──" in overview
    assert await page.evaluate("document.title") == "EdgeFed replay"
    assert await _colours(page) > 50
    asked = await page.requested()
    assert [each for each in asked if not each.startswith(server.url)] == []
    assert f"{server.url}static/js/textual.js" in asked


async def _colours(page: Page) -> int:
    """Return how many colours the page shows."""
    image = Image.open(io.BytesIO(await page.picture())).convert("RGB")
    return len(np.unique(np.asarray(image).reshape(-1, 3), axis=0))


async def _use(page: Page) -> None:
    await page.press("2")
    await page.shows("Devices 40", "✗ lost", "connection broke")
    await page.press("y")
    await page.shows("Copied xavier-02")
    assert await page.clipboard() == "xavier-02"
    await page.press("z", code=ord("Z"), ctrl=True)
    await page.shows("A dashboard in a browser cannot be suspended.")


async def _quit(page: Page, server: Served) -> None:
    processes = server.dashboards()
    assert len(processes) == 1
    await page.press("q", code=ord("Q"), ctrl=True)
    await until_gone(processes)
    assert "-closed" in await page.evaluate("document.body.className")
