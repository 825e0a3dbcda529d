"""The dashboard's feed and control over MQTT."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.clock import Clock
from edgefed.config.address import Address
from edgefed.control.snapshot_watcher import SnapshotWatcher
from edgefed.events.feed_update import FeedUpdate


class MqttFeed:
    """Snapshots of a fleet as they come; also takes the dashboard's orders.

    Args:
        on_update: also told every update; for a caller that waits for the run's end.
    """

    def __init__(
        self,
        address: Address,
        fleet: str,
        clock: Clock,
        on_update: Callable[[FeedUpdate], None] = lambda update: None,
    ) -> None:
        self._listener: Callable[[FeedUpdate], None] = lambda update: None
        self._on_update = on_update
        self._watcher = SnapshotWatcher(address, fleet, clock, self._deliver)

    def start(self, listener: Callable[[FeedUpdate], None]) -> None:
        """Begin to deliver."""
        self._listener = listener
        self._watcher.start()

    def stop(self) -> None:
        """End."""
        self._watcher.stop()

    def order(self, action: str, run: str) -> None:
        """Give an order to a run and wait until the coordinator has taken it."""
        self._watcher.coordinator.order("run.order", run=run, action=action)

    def _deliver(self, update: FeedUpdate) -> None:
        self._listener(update)
        self._on_update(update)
