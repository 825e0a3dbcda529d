"""Keep a broker running in the foreground until shutdown is requested."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from broker.start_broker import RunningBroker
from edgefed.errors import UnreachableError
from edgefed.process.stop_signals import call_soon

_LOOK_SECONDS = 0.5


@contextmanager
def sigterm_as_event() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM sets, instead of ending the process, inside the block."""
    event = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        call_soon(event.set)

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield event
    finally:
        signal.signal(signal.SIGTERM, before)


def wait_for_end(broker: RunningBroker, stop: threading.Event) -> None:
    """Wait until ``stop`` is set.

    Raises:
        UnreachableError: the broker ended by itself.
    """
    while not stop.wait(_LOOK_SECONDS):
        if not broker.is_running():
            raise UnreachableError(
                f"The broker on {broker.address} has ended.",
                code="broker.ended",
                hint=f"read its log: {broker.log}",
            )
