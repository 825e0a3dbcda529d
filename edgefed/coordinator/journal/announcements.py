"""Publish the coordinator's retained state and its events."""

from __future__ import annotations

import logging
import threading
from typing import Any

from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.errors import EdgeFedError
from edgefed.events.base.model import Event
from edgefed.transport.link import Link
from edgefed.wire.messages import CoordinatorState, EventMessage
from edgefed.wire.topics import Topics

log = logging.getLogger(__name__)


class Announcements:
    """Publishes the coordinator's state and events; safe from any thread.

    Args:
        link: the connection.
        topics: of the fleet.
        state: the first state to publish.
    """

    def __init__(self, link: Link, topics: Topics, state: CoordinatorState) -> None:
        self._link = link
        self._topics = topics
        self._state = state
        self._lock = threading.Lock()

    def record(self, record: RunRecord) -> None:
        """Announce the progress of a run, if it has changed."""
        shown = (record.run, record.status, record.round)
        before = (self._state.run, self._state.run_status, self._state.round)
        if shown != before:
            through = self._state.closed_through if self._state.run == record.run else -1
            self.change(
                run=record.run,
                run_status=record.status,
                round=record.round,
                closed_through=through,
            )

    def closed(self, run: str, through: int) -> None:
        """Announce that replies to exchanges of a run up to this index may be thrown away."""
        if self._state.run == run:  # not that of an earlier run, which was tested again
            self.change(run=run, closed_through=through)

    def change(self, **changes: Any) -> None:
        """Announce a state that differs in these fields."""
        with self._lock:  # the broker must not be left with an older one
            self._state = self._state.model_copy(update=changes)
            self._send()

    def repeat(self) -> None:
        """Announce the state again."""
        with self._lock:
            self._send()

    def event(self, event: Event, number: int) -> None:
        """Publish an event, best effort."""
        flat = {"time": event.time, "kind": event.kind, **event.fields}
        message = EventMessage(session=self._state.session, number=number, event=flat)
        try:
            self._link.send(self._topics.events(), message, qos=0)
        except EdgeFedError as error:
            log.warning("an event was not published: %s", error.message)

    def _send(self) -> None:
        self._link.send(self._topics.coordinator(), self._state, retain=True)
