"""A paho client for tests, and waiting for what another process does."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from edgefed.config.values.address import Address

PATIENCE = 20.0


class Connected:
    """A connected client and what it has received."""

    def __init__(self, address: Address, client_id: str, user: str, password: str) -> None:
        self.messages: queue.SimpleQueue[MQTTMessage] = queue.SimpleQueue()
        self.ended = threading.Event()
        self.reasons: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._subscribed = threading.Event()
        self.client = Client(
            CallbackAPIVersion.VERSION2, client_id=client_id, reconnect_on_failure=False
        )
        if user:
            self.client.username_pw_set(user, password or None)
        self.client.on_connect = lambda *arguments: self.reasons.put(str(arguments[3]))
        self.client.on_disconnect = lambda *_: self.ended.set()
        self.client.on_message = lambda _client, _data, message: self.messages.put(message)
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.connect(address.host, address.port)
        self.client.loop_start()
        self.answer = self.reasons.get(timeout=PATIENCE)

    def subscribe(self, topic: str) -> None:
        self._subscribed.clear()
        self.client.subscribe(topic, qos=1)
        assert self._subscribed.wait(PATIENCE)

    def publish(self, topic: str, payload: bytes, **options: Any) -> None:
        """Publish with QoS 1 and wait for the broker's acknowledgement."""
        self.client.publish(topic, payload, qos=1, **options).wait_for_publish(PATIENCE)

    def receive(self) -> tuple[str, bytes]:
        message = self.messages.get(timeout=PATIENCE)
        return message.topic, bytes(message.payload)


@contextmanager
def connected(
    address: Address, client_id: str = "", *, user: str = "", password: str = ""
) -> Iterator[Connected]:
    client = Connected(address, client_id, user, password)
    try:
        yield client
    finally:
        client.client.disconnect()
        client.client.loop_stop()


def until(true: Callable[[], bool]) -> bool:
    """Whether it becomes true before patience ends."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_gone(pid: int) -> bool:
    """Whether the process has ended, though nobody may have collected it."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except ProcessLookupError:
        return True
    except FileNotFoundError:  # no /proc on this system: what can be signalled is there
        return False
