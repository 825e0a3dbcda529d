"""Show the dashboard of a live fleet."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from edgefed.cli.follow_run import ENDED
from edgefed.cli.mqtt_feed import MqttFeed
from edgefed.clock import Clock
from edgefed.config.address import Address
from edgefed.events.feed_update import FeedUpdate
from edgefed.tui.app import Dashboard
from edgefed.tui.preferences import FILE
from edgefed.tui.terminal_locale import only_ascii

LINGER = 6.0
"""Seconds that the dashboard stays after its run has ended."""


def show(
    address: Address,
    fleet: str,
    clock: Clock,
    *,
    read_only: bool,
    ascii: bool | None = None,  # noqa: A002
    state: Path,
) -> None:
    """Show the dashboard until it is closed.

    Args:
        address: the broker's.
        fleet: the fleet's name.
        clock: where the time comes from.
        read_only: watch without giving orders.
        ascii: letters in place of symbols; None follows the locale.
        state: folder that keeps the user's choices.
    """
    feed = MqttFeed(address, fleet, clock)
    control = None if read_only else feed
    letters = only_ascii(os.environ) if ascii is None else ascii
    Dashboard(feed, control, clock, letters, preferences=state / FILE).run()


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
    dashboard = Dashboard(feed, feed, clock, only_ascii(os.environ), preferences=state / FILE)
    dashboard.run()
    return ended.is_set()
