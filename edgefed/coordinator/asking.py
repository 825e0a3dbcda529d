"""The exchange that is being asked over MQTT right now: who has what, and what to repeat when."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field

from edgefed.coordinator.fleet import Delivered
from edgefed.coordinator.records import OpenExchange
from edgefed.wire.messages import Reply, Task

REPEAT = 5.0
"""Seconds after which a task that a device does not seem to work on is sent again, then doubled."""

MAX_REPEAT = 60.0


@dataclass
class Asking:
    """One open exchange; guarded by its lock.

    Attributes:
        arrivals: whole replies for the engine; None wakes it.
        wanting: devices whose reply is still out.
    """

    exchange: OpenExchange
    started: float
    arrivals: queue.SimpleQueue[Delivered | None] = field(default_factory=queue.SimpleQueue)
    lock: threading.Lock = field(default_factory=threading.Lock)
    wanting: dict[str, Task] = field(default_factory=dict)
    _repeats: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.wanting = {task.device: task for task in self.exchange.tasks}
        self._repeats = dict.fromkeys(self.wanting, (self.started + REPEAT, REPEAT))

    def task(self, device: str) -> Task | None:
        """Return the task that a device has still to answer."""
        with self.lock:
            return self.wanting.get(device)

    def extend(self, seconds: float) -> None:
        """Move the deadline: replies could not be taken for so long."""
        with self.lock:
            self.started += seconds

    def wants(self, reply: Reply) -> bool:
        """Whether a reply is one that is still out."""
        with self.lock:
            return reply.exchange == self.exchange.exchange and reply.device in self.wanting

    def settle(self, device: str) -> None:
        """Note that a device's reply is here."""
        with self.lock:
            self.wanting.pop(device, None)
            self._repeats.pop(device, None)

    def to_repeat(self, now: float) -> list[Task]:
        """Return the tasks whose time to be sent again has come, if nobody works on them."""
        with self.lock:
            due = [device for device, (when, _) in self._repeats.items() if when <= now]
            for device in due:
                wait = min(2 * self._repeats[device][1], MAX_REPEAT)
                self._repeats[device] = (now + wait, wait)
            return [self.wanting[device] for device in due]
