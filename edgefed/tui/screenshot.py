"""Draw the real dashboard without a terminal, as a picture for the README."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timezone, tzinfo
from pathlib import Path

from edgefed.errors import TimeLimitError
from edgefed.files.writing import write_output
from edgefed.process.clock import Clock
from edgefed.tui.app import Dashboard
from edgefed.tui.screens.registry import ScreenName
from edgefed.tui.state.interfaces import Control, Feed

_LOOKS = 200
_PAUSE = 0.05


def save_picture(
    feed: Feed,
    size: tuple[int, int],
    path: Path,
    *,
    clock: Clock,
    control: Control | None = None,
    screen: ScreenName = "overview",
    press: Sequence[str] = (),
    zone: tzinfo | None = timezone.utc,
) -> None:
    """Draw a screen of the dashboard into an SVG file.

    Args:
        feed: source of the snapshot; the picture is drawn after the first one.
        size: columns and lines of the window.
        path: the file to write.
        clock: source of the time on the screen.
        control: without one the picture shows a read-only dashboard.
        screen: which screen.
        press: keys to press before the picture is taken.
        zone: zone for times of day.

    Raises:
        TimeLimitError: the feed delivers nothing.
        StorageError: the file cannot be written.
    """
    app = Dashboard(feed, control, clock, zone=zone, screen=screen)
    svg = asyncio.run(_picture(app, size, press))
    write_output(path, svg.encode())


async def _picture(app: Dashboard, size: tuple[int, int], press: Sequence[str]) -> str:
    async with app.run_test(size=size) as pilot:
        for _ in range(_LOOKS):
            if app.latest.snapshot is not None:
                break
            await pilot.pause(_PAUSE)
        else:
            raise TimeLimitError(
                "There is nothing to draw: the feed has no snapshot.",
                hint="use a recording with events, or a current run",
            )
        await pilot.press(*press)
        await pilot.pause()
        return app.export_screenshot(title="EdgeFed")
