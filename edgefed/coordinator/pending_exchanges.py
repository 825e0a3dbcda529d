"""All open exchanges by id, and the order in which a device receives its open tasks."""

from __future__ import annotations

import threading
from typing import Literal

from edgefed.coordinator.pending_exchange import PendingExchange
from edgefed.wire.messages import Reply, Task

Access = Literal["none", "private", "shared"]


class PendingExchanges:
    """The exchanges that are open, in the order in which they were put; safe from any thread.

    An agent does one task at a time and gives it up for a new one. A device therefore gets its open
    tasks one after another, in the order in which their exchanges were put.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, PendingExchange] = {}

    def add(self, pending: PendingExchange) -> None:
        """Open an exchange."""
        with self._lock:
            self._open[pending.exchange.exchange] = pending

    def remove(self, exchange: str) -> PendingExchange | None:
        """Close an exchange and return it; None when it is not open."""
        with self._lock:
            return self._open.pop(exchange, None)

    def get(self, exchange: str) -> PendingExchange | None:
        """Return an open exchange; None when it is not open."""
        with self._lock:
            return self._open.get(exchange)

    def all(self) -> list[PendingExchange]:
        """Return every open exchange, in the order in which they were put."""
        with self._lock:
            return list(self._open.values())

    def task(self, device: str) -> Task | None:
        """Return the task that a device is to do now, if any."""
        tasks = (pending.task(device) for pending in self.all())
        return next((task for task in tasks if task is not None), None)

    def is_current(self, task: Task) -> bool:
        """Whether a task is the one that its device is to do now."""
        return self.task(task.device) is task

    def access(self, device: str, digest: str) -> Access:
        """Return a device's access to a blob, from the tasks that it has not answered yet.

        It is ``shared`` if a task names it among the coordinator's own, so that others may get it
        too; ``private`` if another device sent it to this one; else ``none``.
        """
        tasks = [task for pending in self.all() if (task := pending.task(device)) is not None]
        refs = [ref for task in tasks for ref in task.blobs.values()]
        if any(digest in (ref.digest, *(patch.blob for patch in ref.patches)) for ref in refs):
            return "shared"
        relayed = any(digest == relay.digest for task in tasks for relay in task.relays)
        return "private" if relayed else "none"

    def wanting(self, reply: Reply) -> PendingExchange | None:
        """Return the exchange that waits for a reply; None when none does."""
        pending = self.get(reply.exchange)
        return pending if pending is not None and pending.wants(reply) else None

    def devices(self) -> set[str]:
        """Return the devices that have a task to do."""
        return {device for pending in self.all() for device in pending.wanted()}

    def is_over(self, reply: Reply) -> bool:
        """Whether a reply belongs to an exchange before all that are open in its run.

        While none is open, the reply may be to an exchange that is about to be put again.
        """
        indexes = [
            pending.exchange.index
            for pending in self.all()
            if pending.exchange.tasks and pending.exchange.tasks[0].run == reply.run
        ]
        return bool(indexes) and reply.index < min(indexes)
