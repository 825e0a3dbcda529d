"""Show the dashboard of a live fleet."""

from __future__ import annotations

import threading
from pathlib import Path

from edgefed.cli.follow_run import ENDED
from edgefed.cli.mqtt_feed import MqttFeed
from edgefed.clock import Clock
from edgefed.config.address import Address
from edgefed.events.feed_update import FeedUpdate
from edgefed.tui.app import Dashboard
from edgefed.tui.preferences import FILE

LINGER = 6.0
"""Seconds that the dashboard stays after its run has ended."""


def show(
    address: Address,
    fleet: str,
    clock: Clock,
    *,
    read_only: bool,
    ascii: bool,  # noqa: A002
    state: Path,
) -> None:
    """Show the dashboard until it is closed; the state folder keeps the user's choices."""
    feed = MqttFeed(address, fleet, clock)
    control = None if read_only else feed
    Dashboard(feed, control, clock, ascii, preferences=state / FILE).run()


def show_until_ended(address: Address, fleet: str, run: str, clock: Clock, state: Path) -> bool:
    """Show the dashboard until a run has ended; False when it was closed before that."""
    ended = threading.Event()

    def look(update: FeedUpdate) -> None:
        shown = update.snapshot.run if update.snapshot else None
        if shown is None or shown.run != run or shown.status not in ENDED or ended.is_set():
            return
        ended.set()
        timer = threading.Timer(LINGER, lambda: dashboard.call_from_thread(dashboard.exit))
        timer.daemon = True
        timer.start()

    feed = MqttFeed(address, fleet, clock, look)
    dashboard = Dashboard(feed, feed, clock, preferences=state / FILE)
    dashboard.run()
    return ended.is_set()
