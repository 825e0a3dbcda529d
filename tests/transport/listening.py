"""Record what a link delivers, so that a test can wait for it."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from edgefed.config.values.address import Address
from edgefed.transport.inbox import Arrival, Incoming
from edgefed.transport.link import Link

PATIENCE = 30.0
"""Seconds after which a wait has failed."""


class Inbox:
    """Takes arrivals on the link's thread; a test waits for them on its own."""

    def __init__(self) -> None:
        self.all: list[Arrival] = []
        self._queue: queue.SimpleQueue[Arrival] = queue.SimpleQueue()

    def __call__(self, arrival: Arrival) -> None:
        self.all.append(arrival)
        self._queue.put(arrival)

    def wait(self, kind: type[Arrival] | None = None, topic: str = "") -> Arrival:
        """Return the next arrival of a kind, or the next message on a topic."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                arrival = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"waited in vain for {kind or topic}; {self.all}") from None
            if kind is not None and isinstance(arrival, kind):
                return arrival
            if topic and isinstance(arrival, Incoming) and arrival.topic == topic:
                return arrival

    def messages(self) -> list[Incoming]:
        """Return every message that has come."""
        return [each for each in self.all if isinstance(each, Incoming)]


@contextmanager
def linked(address: Address, name: str, *subscriptions: str) -> Iterator[tuple[Link, Inbox]]:
    """A connected link and its inbox; every subscription holds."""
    from edgefed.transport.inbox import Subscribed

    inbox = Inbox()
    link = Link(address, name, inbox, subscriptions=subscriptions)
    link.start_now(PATIENCE)
    try:
        for _ in subscriptions:
            inbox.wait(Subscribed)
        yield link, inbox
    finally:
        link.stop()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return once a condition holds."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.01)
