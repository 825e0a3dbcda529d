"""The fleet of devices behind an MQTT broker, and the report of the devices that it waits for."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta

from edgefed.algorithms.interface.member import Roster
from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.dispatch.dispatcher import Dispatcher
from edgefed.coordinator.exchanges.awaited_replies import PendingExchange
from edgefed.coordinator.exchanges.contributions import Contributions
from edgefed.coordinator.exchanges.fleet import Delivered, Fleet, Overdue, Verdict
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.events.base.device_rounds import waiting_in_words
from edgefed.events.base.snapshot import WaitingView
from edgefed.process.clock import Clock, timestamp
from edgefed.wire.messages import Reply, Task


@dataclass(frozen=True)
class _OpenExchange:
    pending: PendingExchange
    report: WaitingReport


class MqttFleet(Fleet):
    """Sends tasks to agents through the dispatcher and waits for their replies.

    Each open exchange may be read in a thread of its own.

    Args:
        dispatcher: the thread that talks to the broker.
        registry: the connected devices.
        journal: receives the devices that an exchange waits for.
        clock: for deadlines.
        on_closed: called with the exchanges that are over.
        on_accepted: called with each device whose reply was accepted.
    """

    simulated = False
    may_change = True

    def __init__(
        self,
        dispatcher: Dispatcher,
        registry: DeviceRegistry,
        journal: EventJournal,
        clock: Clock,
        on_closed: Callable[[str, int], None],
        on_accepted: Callable[[str], None] = lambda device: None,
    ) -> None:
        self._on_accepted = on_accepted
        self._dispatcher = dispatcher
        self._registry = registry
        self._journal = journal
        self._clock = clock
        self._on_closed = on_closed
        self._open: dict[str, _OpenExchange] = {}
        self._shared: queue.SimpleQueue[Delivered | None] = queue.SimpleQueue()
        self._missed: dict[str, tuple[int, frozenset[str]]] = {}
        self.contributions = Contributions()
        registry.listen(self._note_presence)

    def roster(self) -> Roster:
        """Return the devices that are online and not paused."""
        return self._registry.roster()

    def known(self) -> Roster:
        """Return the devices that have been born, and were neither forgotten nor removed."""
        return self._registry.known()

    def paused(self) -> dict[str, str]:
        """Return why devices that are there are paused, by an operator or their owner's limits."""
        return self._registry.paused()

    def belongs(self, device: str) -> bool:
        """Whether a device is enrolled, in a fleet with an authority."""
        return self._registry.is_enrolled(device)

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        """Wait until so many devices have joined, or time is up, or ``stop``."""
        return self._registry.wait_for(devices, timeout, stop)

    def put(self, exchange: OpenExchange, *, shared: bool = False) -> None:
        """Open an exchange and send its tasks.

        Raises:
            NotAllowedError: ``site.relays``: a device would send another site's device something.
        """
        self._dispatcher.check_receivers(exchange.tasks)
        pending = PendingExchange(exchange, self._clock.monotonic())
        # One queue for all shared exchanges, since one thread waits for any of them
        if shared:
            pending.shared, pending.arrivals = True, self._shared
        report = WaitingReport(pending, self._journal, self._clock)
        self._open[exchange.exchange] = _OpenExchange(pending, report)
        self._dispatcher.open(pending)

    def ask_also(self, exchange: str, task: Task) -> bool:
        """Ask another device in an open exchange; return whether it is open."""
        opened = self._open.get(exchange)
        if opened is None:
            return False
        self._dispatcher.ask_also(opened.pending, task)
        return True

    def withdraw(self, exchange: str, device: str) -> None:
        """Stop asking one device of an exchange, which stays open."""
        opened = self._open.get(exchange)
        if opened is not None:
            self._dispatcher.withdraw(opened.pending, device)

    def replies(self, exchange: OpenExchange, stop: Callable[[], bool]) -> Iterator[Delivered]:
        """Yield replies until all have arrived or no other is waited for."""
        opened = self._open[exchange.exchange]
        while self._is_open(opened.pending) and not stop():
            opened.report.update()
            arrived = self._next(opened.pending)
            if arrived is not None:
                yield arrived
        # A run that stops puts the exchange again, so nobody is left behind
        if not stop():
            opened.report.close()

    def drop(self, exchange: OpenExchange, *, put_again: bool = False) -> None:
        """Close an exchange; notify devices still at work on it, or whose replies were not read."""
        opened = self._open.pop(exchange.exchange, None)
        if opened is None:
            return
        opened.report.end()
        if self._clock.monotonic() >= opened.pending.deadline:
            wanted, began = opened.pending.wanted(), opened.pending.began
            devices = self._registry.steady_since(wanted, began)
            self._missed[exchange.exchange] = (exchange.index, devices)
        self._dispatcher.close(opened.pending)
        for reply in (reply for unread in opened.pending.drop() for reply in unread.replies):
            if not put_again:
                self.verdict(reply, "late", "enough others had answered")

    def missed_deadline(self, exchange: OpenExchange) -> frozenset[str]:
        """Return the devices that could have answered an exchange and let its deadline pass."""
        return self._missed.pop(exchange.exchange, (0, frozenset[str]()))[1]

    def next_reply(self, until: float, stop: Callable[[], bool]) -> Delivered | None:
        """Wait for a reply to any shared exchange, for a change of presence, or the time."""
        if stop():
            return None
        open_ones = (
            exchange.pending for exchange in self._shared_exchanges() if exchange.pending.wanting
        )
        dues = [pending.closes_at() for pending in open_ones]
        left = min((until, *dues)) - self._clock.monotonic()
        try:
            return self._shared.get(timeout=max(0.0, left))
        except queue.Empty:
            return None

    def overdue(self) -> dict[str, Overdue]:
        """Return the shared exchanges that are past their deadline, or whose device is lost."""
        overdue: dict[str, Overdue] = {}
        for opened in self._shared_exchanges():
            pending = opened.pending
            if (pending.wanting or pending.withdrawn) and not self._is_open(pending):
                lost = not pending.wanting or bool(pending.lost_devices())
                overdue[pending.exchange.exchange] = "lost" if lost else "late"
        return overdue

    def postpone(self, seconds: float) -> None:
        """Move the deadlines of the shared exchanges."""
        for opened in self._shared_exchanges():
            opened.pending.extend(seconds)

    def forget(self, exchanges: Collection[str]) -> None:
        """Delete the replies to exchanges that were dropped."""
        self._dispatcher.forget_exchanges(exchanges)

    def _shared_exchanges(self) -> list[_OpenExchange]:
        return [opened for opened in self._open.values() if opened.pending.shared]

    def _is_open(self, pending: PendingExchange) -> bool:
        """Note lost devices; return whether there is anything left to wait for."""
        if pending.presence_changed.is_set():
            # Cleared before the look: a change in between sets it again
            pending.presence_changed.clear()
            lost = self._registry.lost_since(pending.wanted(), pending.started)
            pending.note_lost(lost)
        now = self._clock.monotonic()
        # The deadline holds even while replies are unread
        return now < pending.deadline and pending.is_open(now)

    def _next(self, pending: PendingExchange) -> Delivered | None:
        """Wait for a reply; None when there is something else to look at."""
        left = pending.closes_at() - self._clock.monotonic()
        try:
            return pending.arrivals.get(timeout=max(0.0, left))
        except queue.Empty:
            return None

    def _note_presence(self, device: str) -> None:
        """Note that a device came or went, so that lost devices are checked again."""
        for pending in self._dispatcher.exchanges.all():
            if pending.task(device) is not None:
                pending.presence_changed.set()
                # An empty arrival wakes the reader, which then looks at presence again
                pending.arrivals.put(None)
        self._shared.put(None)  # it may be free to be asked

    def wake(self) -> None:
        """Make the threads that wait in ``replies`` or ``wait_for`` check ``stop`` again."""
        for pending in self._dispatcher.exchanges.all():
            pending.arrivals.put(None)
        self._shared.put(None)
        self._registry.wake()

    def hold(self, reply: Reply) -> None:
        """Count a reply towards its quorum before its verdict."""
        pending = self._dispatcher.exchanges.get(reply.exchange)
        if pending is not None:
            pending.accept(reply.device, self._clock.monotonic())

    def verdict(self, reply: Reply, outcome: Verdict, reason: str) -> None:
        """Send a device the verdict on its reply; accepted replies count towards the quorum."""
        if outcome == "accepted":
            self._on_accepted(reply.device)
            self.hold(reply)
        self._dispatcher.send_receipt(reply.device, reply.exchange, outcome, reason)

    def closed(self, run: str, through: int) -> None:
        """Tell the fleet which exchanges are over."""
        for exchange, (index, _) in [*self._missed.items()]:  # those that nobody asked for
            if exchange == f"{run}-{index}" and index <= through:
                self._missed.pop(exchange, None)
        self._dispatcher.forget(run, through)
        self._dispatcher.flush()  # devices that hear of the close first wait for no verdict
        self._on_closed(run, through)

    def traffic(self) -> tuple[int, int]:
        """Return payload bytes from and to devices."""
        return self._dispatcher.traffic()


NAMED = 8
"""Devices that an event names; of the others it tells how many there are."""


class WaitingReport:
    """The last report on one exchange.

    An exchange without a quorum is not reported while every device is connected.
    """

    def __init__(self, pending: PendingExchange, journal: EventJournal, clock: Clock) -> None:
        self._pending_exchange = pending
        self._journal = journal
        self._clock = clock
        self._announced: tuple[bool, frozenset[str], float] | None = None

    def update(self) -> None:
        """Report changes: the quorum was met, or a device was lost or came back."""
        pending = self._pending_exchange
        quorum = pending.quorum_at is not None
        lost, closes_at = pending.lost_devices(), pending.closes_at()
        if not pending.wanting or not (quorum or lost):
            self.end()
        elif self._announced != (quorum, lost, closes_at):
            self._announced = (quorum, lost, closes_at)
            self._tell(closes_at)

    def end(self) -> None:
        """Report the end of waiting, if there was any."""
        if self._announced is not None:
            self._announced = None
            self._journal.emit(
                "exchange", exchange=self._pending_exchange.exchange.exchange, waiting=None
            )

    def close(self) -> None:
        """Report the devices left behind, if the quorum did not wait for the deadline."""
        pending = self._pending_exchange
        lost, online = pending.out()
        self.end()
        if lost and not online and self._clock.monotonic() < pending.deadline:
            named = waiting_in_words(WaitingView(lost=lost[:NAMED], more=len(lost[NAMED:])))
            text = f"round {pending.exchange.round} continues without {named}"
            self._journal.emit("note", level="warning", text=text)

    def _tell(self, closes_at: float) -> None:
        lost, online = self._pending_exchange.out()
        left = timedelta(seconds=closes_at - self._clock.monotonic())
        waiting = {
            "lost": lost[:NAMED],
            "online": online[: max(0, NAMED - len(lost))],
            "more": max(0, len(lost) + len(online) - NAMED),
            "until": timestamp(self._clock.now() + left),
        }
        self._journal.emit(
            "exchange", exchange=self._pending_exchange.exchange.exchange, waiting=waiting
        )
