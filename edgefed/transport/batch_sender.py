"""Send messages of, or to, many devices in batches: one publication for those of a moment."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from edgefed.errors import EdgeFedError
from edgefed.transport.inbox import COALESCED
from edgefed.wire.messages import Message
from edgefed.wire.site_messages import SumRequest, pack_batches

log = logging.getLogger(__name__)

GATHER = 0.02
"""Seconds for which messages are collected."""


class BatchSender:
    """A thread that collects messages for each gateway and publishes them in batches.

    Args:
        publish: publishes one batch for a gateway.
    """

    def __init__(self, publish: Callable[[str, bytes], None]) -> None:
        self._publish = publish
        self._waiting: dict[str, list[tuple[str, Message]]] = {}
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._closing = False
        self._thread: threading.Thread | None = None

    def put(self, gateway: str, device: str, message: Message) -> None:
        """Queue a message; the thread starts with the first one."""
        with self._changed:
            self._waiting.setdefault(gateway, []).append((device, message))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
                self._thread.start()
            self._changed.notify()

    def flush(self) -> None:
        """Send the waiting messages now, before anything that the caller sends next."""
        with self._sending:
            with self._changed:
                waiting, self._waiting = self._waiting, {}
            # Without the lock, so that others can queue messages meanwhile
            for gateway, messages in waiting.items():
                self._send(gateway, without_old_states(messages))

    def stop(self) -> None:
        """Send the waiting messages, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                # Without messages, only the end of the thread wakes it
                if not self._waiting:
                    return
                if not self._closing:
                    self._changed.wait_for(lambda: self._closing, GATHER)
            self.flush()

    def _send(self, gateway: str, messages: Iterable[tuple[str, Message]]) -> None:
        try:
            for batch in pack_batches(messages):
                self._publish(gateway, batch)
        except EdgeFedError as error:
            log.warning("messages for %s were not sent: %s", gateway or "the fleet", error.message)


def without_old_states(
    messages: list[tuple[str, Message]],
) -> list[tuple[str, Message]]:
    """Return messages without those of a kind of which only the latest one counts."""
    last = {
        (device, message.kind): index
        for index, (device, message) in enumerate(messages)
        if message.kind in (*COALESCED, SumRequest.kind)
    }
    return [
        (device, message)
        for index, (device, message) in enumerate(messages)
        if last.get((device, message.kind), index) == index
    ]
