"""Drive the app without a terminal, and read what stands on its screen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from textual.pilot import Pilot
from textual.widget import Widget

from edgefed.events.state.feed_update import FeedUpdate
from edgefed.tui.app import Dashboard

PATIENCE = 60.0
"""Seconds after which a wait has failed."""

Size = tuple[int, int]
Scenario = Callable[["Pilot[None]"], Awaitable[None]]


def drive(app: Dashboard, scenario: Scenario, size: Size = (120, 36), *others: Size) -> None:
    """Run ``scenario`` on the app once it has drawn its first snapshot, in each of the sizes."""

    async def run() -> None:
        async with app.run_test(size=size, notifications=True) as pilot:
            await settle(pilot)
            await scenario(pilot)
            for each in others:
                await resize(pilot, each)
                await scenario(pilot)

    asyncio.run(run())


async def resize(pilot: Pilot[None], size: tuple[int, int]) -> None:
    """Give the terminal another size, and wait until all is drawn."""
    await pilot.resize_terminal(*size)
    await pilot.pause()
    await pilot.pause()


async def tell(pilot: Pilot[None], update: FeedUpdate) -> None:
    """Let the feed tell something else, and draw it at once."""
    app = pilot.app
    assert isinstance(app, Dashboard)
    app._listen(update)
    await pilot.pause()
    app._draw()
    await settle(pilot)


async def settle(pilot: Pilot[None]) -> None:
    """Wait until orders were answered and all that follows from them is laid out, and draw it."""
    await lay_out(pilot)
    screen_text(pilot)


async def lay_out(pilot: Pilot[None]) -> None:
    """Wait until orders were answered and all that follows from them is laid out."""
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()
    await pilot.pause()


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Wait until the app shows something, at its next tick at the latest."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, screen_text(pilot)
        await pilot.pause(0.05)


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys and wait for all that follows."""
    await pilot.press(*keys)
    await settle(pilot)


def text_of(widget: Widget) -> str:
    """Return the characters that a widget shows, line by line."""
    lines = widget.render_lines(widget.size.region)
    return "\n".join("".join(segment.text for segment in line) for line in lines)


def inside(pilot: Pilot[None], pane: str) -> list[str]:
    """Return the lines between the borders of a pane."""
    widget = pilot.app.screen.query_one(pane)
    lines = widget.render_lines(widget.outer_size.region)[1:-1]
    return ["".join(segment.text for segment in line)[2:-2] for line in lines]


def words(pilot: Pilot[None], pane: str) -> list[list[str]]:
    """Return the words of each line between the borders of a pane."""
    return [line.split() for line in inside(pilot, pane)]


def heading(pilot: Pilot[None], pane: str) -> str:
    """Return the text in the upper border of a pane."""
    return str(pilot.app.screen.query_one(pane).border_title)


def screen_text(pilot: Pilot[None]) -> str:
    """Return every character on the screen."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def notices(pilot: Pilot[None]) -> list[tuple[str, str]]:
    """Return title and text of the notifications on the screen."""
    return [(notice.title, notice.message) for notice in pilot.app._notifications]
