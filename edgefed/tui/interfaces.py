"""The dashboard's interfaces to the outside: a feed of snapshots, and a control for requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from edgefed.events.feed_update import FeedUpdate


class Feed(Protocol):
    """A stream of snapshots, live or from a file."""

    def start(self, listener: Callable[[FeedUpdate], None]) -> None:
        """Begin; ``listener`` is called from another thread, at most twice a second."""
        ...

    def stop(self) -> None:
        """End; the listener is not called after this returns."""
        ...


class Control(Protocol):
    """Orders to the coordinator; None in its place when the screen may only watch."""

    def order(self, action: str, run: str) -> None:
        """Send ``pause``, ``resume``, ``step``, ``finish`` or ``abort`` for a run and wait.

        Raises:
            EdgeFedError: it was refused, or nobody answered.
        """
        ...
