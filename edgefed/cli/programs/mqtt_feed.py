"""The dashboard's feed, control and list of runs over MQTT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from edgefed.config.values.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.control.device_log import DeviceLog
from edgefed.control.event_pages import event_page
from edgefed.control.snapshot_watcher import SnapshotWatcher
from edgefed.errors import TimeLimitError, WireError
from edgefed.events.base.event_entries import EventFilter, EventPage
from edgefed.events.history.known_runs import RunDetails, RunRow
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import Clock
from edgefed.tui.state.device_key_orders import DeviceAction

DEVICE_TIMEOUT = 5.0
"""Seconds in which a device has to answer."""

LOG_LINES = 100
"""Lines of a log that a screen may show."""

_PATIENCE = DEVICE_TIMEOUT + 10.0
"""Seconds in which the coordinator has to answer then."""


class MqttFeed:
    """Snapshots of a fleet as they arrive; also takes the dashboard's orders and knows the runs.

    Args:
        on_update: also called with every update; for a caller that waits for the run's end.
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

    @property
    def coordinator(self) -> CoordinatorClient:
        """The connection to the coordinator, for more than orders to a run."""
        return self._watcher.coordinator

    def start(self, listener: Callable[[FeedUpdate], None]) -> None:
        """Start to deliver snapshots."""
        self._listener = listener
        self._watcher.start()

    def stop(self) -> None:
        """Stop."""
        self._watcher.stop()

    def order(self, action: str, run: str) -> None:
        """Give an order to a run and wait until the coordinator has taken it."""
        self._watcher.coordinator.order("run.order", run=run, action=action)

    def list_runs(self) -> Sequence[RunRow]:
        """Return every run that the coordinator knows, the newest first."""
        return [RunRow.model_validate(row) for row in self._watcher.coordinator.ask("run.list")]

    def run_details(self, run: str) -> RunDetails:
        """Return a run with its settings and its rounds, from the coordinator."""
        return RunDetails.model_validate(self._watcher.coordinator.ask("run.show", run=run))

    def event_page(
        self, wanted: EventFilter, *, before: int | None = None, after: int | None = None
    ) -> EventPage:
        """Return a page of the coordinator's event log."""
        return event_page(self._watcher.coordinator, wanted, before=before, after=after)

    def device_order(self, action: DeviceAction, device: str, reason: str = "") -> None:
        """Give an order about a device and wait until the coordinator has taken it."""
        more = {"reason": reason} if action == "pause" else {}
        self._watcher.coordinator.order(f"device.{action}", device=device, **more)

    def ping(self, device: str) -> float:
        """Return the seconds from the coordinator's ping to the device's answer."""
        arguments = {"devices": [device], "timeout": DEVICE_TIMEOUT}
        results = self._watcher.coordinator.call("device.ping", arguments, _PATIENCE)
        try:
            (result,) = results
            outcome, seconds = result["outcome"], result["seconds"]
        except (ValueError, KeyError, TypeError) as error:
            raise WireError("The coordinator's response is invalid.") from error
        if seconds is None:
            words = (
                "is lost" if outcome == "lost" else f"did not answer within {DEVICE_TIMEOUT:g} s"
            )
            raise TimeLimitError(f"{device} {words}.", code="device.silent", hint="")
        return float(seconds)

    def log(self, device: str) -> tuple[str, ...]:
        """Return the newest lines of the log of a device's agent."""
        ask = partial(self._watcher.coordinator.call, timeout=_PATIENCE)
        return DeviceLog(ask, device, DEVICE_TIMEOUT).tail(LOG_LINES).lines

    def _deliver(self, update: FeedUpdate) -> None:
        self._listener(update)
        self._on_update(update)
