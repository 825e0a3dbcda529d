"""The dashboard of one browser tab: a process that ends with its tab."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from textual_serve.app_service import AppService

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
