"""The dashboard's interfaces to the outside: snapshots, requests to the coordinator, past runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from edgefed.events.base.event_entries import EventFilter, EventPage
from edgefed.events.history.known_runs import RunDetails, RunRow
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.tui.state.device_key_orders import DeviceAction


class Feed(Protocol):
    """A stream of snapshots, live or from a file."""

    def start(self, listener: Callable[[FeedUpdate], None]) -> None:
        """Begin; ``listener`` is called from another thread, at most twice a second."""
        ...

    def stop(self) -> None:
        """Stop; the listener is not called after this returns."""
        ...


class Control(Protocol):
    """Orders to the coordinator; None in its place when the screen may only watch."""

    def order(self, action: str, run: str) -> None:
        """Send ``pause``, ``resume``, ``step``, ``finish`` or ``abort`` for a run and wait.

        Raises:
            EdgeFedError: it was refused, or there was no answer.
        """
        ...

    def device_order(self, action: DeviceAction, device: str, reason: str = "") -> None:
        """Give an order about a device and wait; only a pause has a reason.

        Raises:
            EdgeFedError: it was refused, or there was no answer.
        """
        ...

    def ping(self, device: str) -> float:
        """Return the seconds from the coordinator's ping to the device's answer.

        Raises:
            EdgeFedError: it was refused, or the device or the coordinator does not answer.
        """
        ...

    def log(self, device: str) -> tuple[str, ...]:
        """Return the newest lines of the log of a device's agent, oldest first.

        Raises:
            EdgeFedError: it was refused, or the device or the coordinator does not answer.
        """
        ...


class Events(Protocol):
    """The event log, of a coordinator or of a recording."""

    def event_page(
        self, wanted: EventFilter, *, before: int | None = None, after: int | None = None
    ) -> EventPage:
        """Return the entries before a position, newest first, or from one on, oldest first.

        Without positions, the newest entries. There may be few or none although the log goes on.

        Raises:
            EdgeFedError: there was no answer, or the log cannot be read.
        """
        ...


class Runs(Protocol):
    """All known runs, of a coordinator or of a state folder; methods may take long."""

    def list_runs(self) -> Sequence[RunRow]:
        """Return every run, the newest first.

        Raises:
            EdgeFedError: there was no answer, or the state folder cannot be read.
        """
        ...

    def run_details(self, run: str) -> RunDetails:
        """Return a run with its settings and its rounds.

        Raises:
            EdgeFedError: as above, or there is no such run.
        """
        ...
