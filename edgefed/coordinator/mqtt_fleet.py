"""The fleet behind an MQTT broker, as the engine sees it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

from edgefed.algorithms.base import Roster
from edgefed.clock import Clock
from edgefed.coordinator.asking import Asking
from edgefed.coordinator.directory import Directory
from edgefed.coordinator.fleet import Delivered, Verdict
from edgefed.coordinator.hub import Hub
from edgefed.coordinator.journal import Journal
from edgefed.coordinator.records import OpenExchange
from edgefed.coordinator.waiting import WaitingReport
from edgefed.wire.messages import Reply


class MqttFleet:
    """Puts questions to agents through the hub and waits for what comes back.

    Args:
        hub: the thread that talks to the broker.
        directory: who is there.
        journal: told whom an exchange waits for.
        clock: for deadlines.
        on_closed: told which exchanges are over.
    """

    simulated = False

    def __init__(
        self,
        hub: Hub,
        directory: Directory,
        journal: Journal,
        clock: Clock,
        on_closed: Callable[[str, int], None],
    ) -> None:
        self._hub = hub
        self._directory = directory
        self._journal = journal
        self._clock = clock
        self._on_closed = on_closed
        self._asking: Asking | None = None
        self._presence_changed = threading.Event()
        directory.listen(self._note_presence)

    def roster(self) -> Roster:
        """Return the devices that are online and not paused."""
        return self._directory.roster()

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        """Wait until so many devices have joined, or time is up, or ``stop``."""
        return self._directory.wait_for(devices, timeout, stop)

    def ask(self, exchange: OpenExchange, stop: Callable[[], bool]) -> Iterator[Delivered]:
        """Send the tasks and yield replies until all are in or nobody else is waited for."""
        asking = Asking(exchange, self._clock.monotonic())
        report = WaitingReport(asking, self._journal, self._clock)
        self._asking = asking
        self._presence_changed.set()
        try:
            self._hub.open(asking)
            while self._is_open(asking) and not stop():
                report.update()
                arrived = self._next(asking)
                if arrived is not None:
                    yield arrived
            if not stop():
                report.close()
        finally:
            self._asking = None
            report.end()
            self._hub.close(asking)
            if not stop():
                self._decline_rest(asking)

    def _is_open(self, asking: Asking) -> bool:
        """Look who is lost, and whether anything is left to wait for."""
        if self._presence_changed.is_set():
            self._presence_changed.clear()
            lost = self._directory.lost_since(asking.wanted(), asking.started)
            asking.note_lost(lost)
        now = self._clock.monotonic()
        return now < asking.deadline and asking.is_open(now)

    def _next(self, asking: Asking) -> Delivered | None:
        """Wait for a reply; None when there is something else to look at."""
        left = asking.closes_at() - self._clock.monotonic()
        try:
            return asking.arrivals.get(timeout=max(0.0, left))
        except queue.Empty:
            return None

    def _note_presence(self, device: str) -> None:
        """Look again who is lost: a device came or went."""
        asking = self._asking
        if asking is not None and asking.task(device) is not None:
            self._presence_changed.set()
            asking.arrivals.put(None)

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
        """Tell a device what became of its reply; what is accepted counts towards the quorum."""
        asking = self._asking
        if outcome == "accepted" and asking is not None and asking.asks(reply.exchange):
            asking.accept(self._clock.monotonic())
        self._hub.send_receipt(reply.device, reply.exchange, outcome, reason)

    def closed(self, run: str, through: int) -> None:
        """Tell the fleet which exchanges are over."""
        self._hub.forget(through)
        self._on_closed(run, through)

    def traffic(self) -> tuple[int, int]:
        """Return payload bytes from and to devices."""
        return self._hub.traffic()
