"""Carry alerts to one receiver, in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

MOST_WAITING = 16
"""Alerts that wait for a receiver; more than these are left out."""

STOP_SECONDS = 2.0
"""Seconds for which alerts are still carried when the coordinator ends."""


class Receiver(Protocol):
    """Receives alerts."""

    def send(self, told: Mapping[str, Any]) -> str:
        """Send an alert; return why that failed, empty on success."""
        ...

    def close(self) -> None:
        """Abandon the alert that is being sent."""
        ...


class AlertCourier:
    """Hands alerts to a receiver, one after the other; ``give`` never blocks.

    Args:
        name: of the receiver, used in warnings.
        receiver: receives the alerts.
        warn: called with a warning when the receiver fails.
    """

    def __init__(self, name: str, receiver: Receiver, warn: Callable[[str], None]) -> None:
        self._name = name
        self._receiver = receiver
        self._warn = warn
        self._waiting: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._carry, name=f"alert {name}", daemon=True)
        self._thread.start()

    def give(self, told: Mapping[str, Any]) -> None:
        """Queue an alert for the receiver."""
        if self._waiting.qsize() >= MOST_WAITING:
            self._warn(f"{self._name} of an alert: too many wait; one was left out")
        else:
            self._waiting.put(told)

    def stop(self) -> None:
        """End; queued alerts are still sent if their receiver takes them soon."""
        self._waiting.put(None)
        self._thread.join(STOP_SECONDS)
        self._receiver.close()
        self._thread.join(STOP_SECONDS)

    def _carry(self) -> None:
        while (told := self._waiting.get()) is not None:
            try:
                problem = self._receiver.send(told)
            except Exception as error:  # a bug in it costs an alert, not those that follow
                problem = f"failed: {type(error).__name__}: {error}"
            if problem:
                self._warn(f"{self._name} of an alert {problem}")
