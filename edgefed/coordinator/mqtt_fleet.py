"""The fleet behind an MQTT broker, as the engine sees it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

from edgefed.algorithms.base import Roster
from edgefed.clock import Clock
from edgefed.coordinator.asking import Asking
from edgefed.coordinator.directory import Directory
from edgefed.coordinator.fleet import Delivered, Verdict
from edgefed.coordinator.hub import Hub
from edgefed.coordinator.records import OpenExchange
from edgefed.wire.messages import Reply


class MqttFleet:
    """Puts questions to agents through the hub and waits for what comes back.

    Args:
        hub: the thread that talks to the broker.
        directory: who is there.
        clock: for deadlines.
        on_closed: told which exchanges are over.
    """

    simulated = False

    def __init__(
        self,
        hub: Hub,
        directory: Directory,
        clock: Clock,
        on_closed: Callable[[str, int], None],
    ) -> None:
        self._hub = hub
        self._directory = directory
        self._clock = clock
        self._on_closed = on_closed
        self._asking: Asking | None = None

    def roster(self) -> Roster:
        """Return the devices that are online and not paused."""
        return self._directory.roster()

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        """Wait until so many devices have joined, or time is up, or ``stop``."""
        return self._directory.wait_for(devices, timeout, stop)

    def ask(self, exchange: OpenExchange, stop: Callable[[], bool]) -> Iterator[Delivered]:
        """Send the tasks and yield replies until all are in or the deadline has passed."""
        asking = Asking(exchange, self._clock.monotonic())
        self._asking = asking
        try:
            self._hub.open(asking)
            while asking.wanting or not asking.arrivals.empty():
                left = asking.started + exchange.deadline - self._clock.monotonic()
                if left <= 0 or stop():
                    return
                try:
                    arrived = asking.arrivals.get(timeout=left)
                except queue.Empty:
                    continue  # the deadline may have been moved
                if arrived is not None:
                    yield arrived
        finally:
            self._asking = None
            self._hub.close(asking)
            if not stop():
                self._decline_rest(asking)

    def _decline_rest(self, asking: Asking) -> None:
        """Tell those whose replies came after enough others that they were late."""
        while not asking.arrivals.empty():
            rest = asking.arrivals.get()
            if rest is not None:
                self.verdict(rest.reply, "late", "enough others had answered")

    def wake(self) -> None:
        """Make whoever waits in ``ask`` or ``wait_for`` look at ``stop`` again."""
        asking = self._asking
        if asking is not None:
            asking.arrivals.put(None)
        self._directory.wake()

    def verdict(self, reply: Reply, outcome: Verdict, reason: str) -> None:
        """Tell a device what became of its reply."""
        self._hub.send_receipt(reply.device, reply.exchange, outcome, reason)

    def closed(self, run: str, through: int) -> None:
        """Tell the fleet which exchanges are over."""
        self._hub.forget(through)
        self._on_closed(run, through)

    def traffic(self) -> tuple[int, int]:
        """Return payload bytes from and to devices."""
        return self._hub.traffic()
