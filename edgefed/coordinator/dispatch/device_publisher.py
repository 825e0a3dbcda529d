"""Publish messages to single devices, and count their bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable

from edgefed.coordinator.exchanges.fleet import Verdict
from edgefed.transport.blob_intake import Ask
from edgefed.transport.link import Link
from edgefed.wire.envelope import encode
from edgefed.wire.messages import Cancel, Message, Receipt, Task
from edgefed.wire.topics import Topics


class DevicePublisher:
    """Publishes on the topics of single devices; safe from any thread.

    Args:
        link: the connection.
        topics: of the fleet.
        addressed: returns a task as it is to be sent now.
    """

    def __init__(
        self,
        link: Link,
        topics: Topics,
        addressed: Callable[[Task], Task] = lambda task: task,
    ) -> None:
        self._addressed = addressed
        self._link = link
        self._topics = topics
        self._lock = threading.Lock()
        self._sent = 0

    @property
    def sent(self) -> int:
        """Payload bytes published so far."""
        with self._lock:
            return self._sent

    def task(self, task: Task) -> None:
        """Give a device its task."""
        self._publish(self._topics.task(task.device), self._addressed(task))

    def cancel(self, device: str, exchange: str) -> None:
        """Tell a device that its reply to an exchange is no longer needed."""
        self._publish(self._topics.cancel(device), Cancel(exchange=exchange))

    def receipt(self, device: str, exchange: str, outcome: Verdict, reason: str) -> None:
        """Send a device the verdict on its reply."""
        receipt = Receipt(exchange=exchange, outcome=outcome, reason=reason[:1000])
        self._publish(self._topics.receipt(device), receipt)

    def need(self, ask: Ask) -> None:
        """Ask a device for a blob of its reply."""
        self._publish(self._topics.down_need(ask.source), ask.need)

    def _publish(self, topic: str, message: Message) -> None:
        payload = encode(message, topic, self._link.signer)
        with self._lock:
            self._sent += len(payload)
        self._link.publish(topic, payload)
