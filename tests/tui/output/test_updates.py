"""What the dashboard writes shows the same as Textual's own output; it writes far less.

These tests fail where another version of Textual updates the screen in another way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from rich.console import Console
from textual._compositor import LayoutUpdate
from textual.pilot import Pilot

from edgefed.tui.app import Dashboard
from tests.support.terminal_screen import TerminalScreen
from tests.tui.driving import settle
from tests.tui.output.drivers import ScreenDriver, driver_of
from tests.tui.samples import FakeClock, dashboard, fine, snapshot

SIZE = (120, 36)


def in_terminal(
    scenario: Callable[[Pilot[None], FakeClock], Awaitable[None]], **options: object
) -> None:
    """Run a scenario on a dashboard that draws as in a real terminal."""
    clock = FakeClock()
    app = dashboard(fine(snapshot()), clock=clock, **options)
    app.driver_class = ScreenDriver

    async def run() -> None:
        async with app.run_test(headless=False, size=SIZE, notifications=True) as pilot:
            await settle(pilot)
            await scenario(pilot, clock)

    asyncio.run(run())


def textual_picture(app: Dashboard) -> list[list[tuple[str, object]]]:
    """Return what the screen shows where Textual writes all of it."""
    compositor = app.screen._compositor
    update = compositor.render_update(full=True, screen_stack=app._background_screens)
    assert isinstance(update, LayoutUpdate)
    whole = TerminalScreen(*app.size)
    whole.take(update.render_segments(Console(color_system="256")).encode())
    return whole.picture()
