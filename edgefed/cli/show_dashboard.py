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
from edgefed.tui.closing import ENDS_DEMO, WATCHES, Closing
from edgefed.tui.preferences import FILE
from edgefed.tui.terminal_locale import only_ascii


def show(
    address: Address,
    fleet: str,
    clock: Clock,
    *,
    read_only: bool,
    ascii: bool | None = None,  # noqa: A002
    state: Path,
    closing: Closing = WATCHES,
) -> None:
    """Show the dashboard until it is closed.

    Args:
        address: the broker's.
        fleet: the fleet's name.
        clock: where the time comes from.
        read_only: watch without giving orders.
        ascii: letters in place of symbols; None follows the locale.
        state: folder that keeps the user's choices.
        closing: what ends with the dashboard.
    """
    feed = MqttFeed(address, fleet, clock)
    control = None if read_only else feed
    letters = only_ascii(os.environ) if ascii is None else ascii
    Dashboard(feed, control, clock, letters, preferences=state / FILE, closing=closing).run()


def show_until_ended(address: Address, fleet: str, run: str, clock: Clock, state: Path) -> bool:
    """Show the dashboard of a run that was just started until the user closes it.

    Returns:
        Whether the run had ended by then.
    """
    ended = threading.Event()

    def look(update: FeedUpdate) -> None:
        shown = update.snapshot.run if update.snapshot else None
        if shown is None or shown.run != run or shown.status not in ENDED or ended.is_set():
            return
        ended.set()
        dashboard.call_later(dashboard.run_ended)

    feed = MqttFeed(address, fleet, clock, look)
    dashboard = Dashboard(
        feed,
        feed,
        clock,
        only_ascii(os.environ),
        preferences=state / FILE,
        closing=ENDS_DEMO,
        starting=f"Starting {run}: the devices connect.",
    )
    dashboard.run()
    return ended.is_set()
