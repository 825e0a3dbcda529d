"""A live snapshot of a fleet: requested once, then updated by events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pydantic import ValidationError

from edgefed.config.values.address import Address
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.errors import EdgeFedError
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.process.clock import Clock, timestamp
from edgefed.wire.messages import EventMessage

log = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds to wait for the coordinator's retained state after the first connection."""

EVERY = 0.5
"""Seconds between two deliveries of a snapshot."""


class SnapshotWatcher:
    """Watches one fleet.

    Args:
        listener: takes the newest state, on this object's thread, at most every ``EVERY`` seconds.
    """

    def __init__(
        self, address: Address, fleet: str, clock: Clock, listener: Callable[[FeedUpdate], None]
    ) -> None:
        self.coordinator = CoordinatorClient(address, fleet, self._take_event, self._take_link)
        self._clock = clock
        self._listener = listener
        self._address = address
        self._fleet = fleet
        self._lock = threading.Lock()
        self._builder: SnapshotBuilder | None = None
        self._session = ""
        self._number = -1
        self._backlog: list[EventMessage] = []
        self._stale = True
        self._since = ""
        self._started = clock.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        """Connect and start to deliver snapshots.

        Raises:
            UnreachableError: there is no broker.
        """
        self.coordinator.connect()
        self._thread.start()

    def stop(self) -> None:
        """Stop; the listener is not called after this returns."""
        self._closing.set()
        self.coordinator.close()  # ends a question that the thread waits for
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=20)

    def _run(self) -> None:
        while not self._closing.is_set():
            self.coordinator.refresh_credentials()
            if self._stale and self.coordinator.connected and self.coordinator.online:
                self._take_whole()
            if not self._closing.is_set():
                self._listener(self._update())
            self._closing.wait(EVERY)

    def _take_whole(self) -> None:
        """Take the whole snapshot, then the events that came meanwhile."""
        try:
            with self._lock:
                self._backlog.clear()
            body = self.coordinator.ask("snapshot")
            snapshot = Snapshot.model_validate(body["snapshot"])
            session, number = str(body["session"]), int(body["number"])
        except (EdgeFedError, ValidationError, KeyError, TypeError, ValueError) as error:
            log.info("no snapshot yet: %s", error)
            return
        with self._lock:
            self._builder = SnapshotBuilder(snapshot)
            self._session, self._number = session, number
            self._stale = False
            for message in self._backlog:
                self._apply(message)
            self._backlog.clear()

    def _take_event(self, message: EventMessage) -> None:
        with self._lock:
            if self._stale:
                self._backlog.append(message)
                del self._backlog[:-5000]
            else:
                self._apply(message)

    def _apply(self, message: EventMessage) -> None:
        """Fold one event in; a gap or another coordinator's life makes the snapshot stale."""
        if message.session == self._session and message.number <= self._number:
            return
        if message.session != self._session or message.number != self._number + 1:
            self._stale = True
            return
        self._number = message.number
        if self._builder is None:
            return
        try:
            self._builder.apply(Event.from_flat(message.event))
        except (ValueError, KeyError, TypeError) as error:
            log.warning("event %d cannot be read: %s", message.number, error)
            self._stale = True

    def _take_link(self, up: bool) -> None:
        with self._lock:
            self._stale = True
            if not up:
                self._since = timestamp(self._clock.now())

    def _update(self) -> FeedUpdate:
        broker, online = self.coordinator.connected, self.coordinator.online
        problem = ""
        if not broker and self.coordinator.refused:
            problem = f"Broker {self._address} refused the connection: {self.coordinator.refused}."
        elif not broker:
            problem = f"Broker {self._address} is unreachable; trying again."
        elif not online and self._clock.monotonic() - self._started < PATIENCE:
            online = True
        elif not online:
            problem = f"Fleet {self._fleet} has no coordinator; start one: edgefed coordinator."
        with self._lock:
            if problem and not self._since:
                self._since = timestamp(self._clock.now())
            if not problem and not self._stale:
                self._since = ""
            snapshot = self._builder.snapshot() if self._builder is not None else None
            return FeedUpdate(snapshot, broker, online and broker, problem, self._since)
