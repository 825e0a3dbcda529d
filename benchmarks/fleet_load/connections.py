"""Connections of many light devices to a broker, served by one thread."""

from __future__ import annotations

import os
import resource
import selectors
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.fleet_load.light_device import LightDevice
from edgefed.config.values.address import Address
from edgefed.transport.link import BufferedClient
from edgefed.wire.topics import CLIENT_ID_PREFIX

KEEP_ALIVE = 120
LOW_FILES = 64
"""Descriptors below 1,024 for the other clients of this process: paho waits for these with select,
which takes no others."""

CONNECT_SECONDS = 60.0
PING_EVERY = 10.0
"""Seconds between two looks at whether clients have to ping the broker."""

TURN = 0.02
"""Longest wait for messages, in seconds, before it is looked at what is due."""

DUE_EVERY = 0.1
"""Seconds between two looks at what each device has to do."""


def allow_sockets(count: int) -> None:
    """Raise this process's limit of open files by so many: those of a fleet before may be open."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, now + count), most))


def _has_read(socket: Any) -> bool:
    """Whether TLS has decrypted bytes that ``select`` does not report."""
    return isinstance(socket, ssl.SSLSocket) and socket.pending() > 0


class Connections:
    """One connection a device; a thread reads all of them.

    Args:
        address: the broker, for devices without a certificate.
        devices: to connect.
        addresses: the broker for each device with a certificate, with its credentials.

    Attributes:
        bytes: payload bytes from and to the devices.
        lost: connections that ended by themselves.
    """

    def __init__(
        self,
        address: Address,
        devices: Sequence[LightDevice],
        addresses: Mapping[str, Address] | None = None,
    ) -> None:
        self.bytes = 0
        self.lost = 0
        self._address = address
        self._addresses = addresses or {}
        self._devices = devices
        self._selector = selectors.DefaultSelector()
        self._clients: list[paho.Client] = []
        self._stopping = threading.Event()
        self._online = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Connect all devices, and return when every one has its connection."""
        self._thread.start()
        while self._online < len(self._devices):
            time.sleep(0.05)
            if not self._thread.is_alive():
                raise SystemExit("the devices could not connect")

    def stop(self) -> None:
        """End all connections without a farewell."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        kept = [os.open(os.devnull, os.O_RDONLY) for _ in range(LOW_FILES)]
        for device in self._devices:
            self._clients.append(self._connect(device))
            self._serve(0.0)
        for file in kept:
            os.close(file)
        next_due = next_ping = 0.0
        while not self._stopping.is_set():
            self._serve(TURN)
            now = time.monotonic()
            if now < next_due:
                continue
            next_due = now + DUE_EVERY
            for device, client in zip(self._devices, self._clients, strict=True):
                device.due(time.monotonic())  # a turn of thousands of devices takes seconds
                if now >= next_ping:
                    client.loop_misc()
            if now >= next_ping:
                next_ping = now + PING_EVERY
        for client in self._clients:
            client.disconnect()

    def _serve(self, wait: float) -> None:
        for key, events in self._selector.select(wait):
            client = key.data
            if events & selectors.EVENT_READ:
                client.loop_read()
                while _has_read(client.socket()):
                    client.loop_read()
            if events & selectors.EVENT_WRITE:
                client.loop_write()

    def _connect(self, device: LightDevice) -> paho.Client:
        name = f"{CLIENT_ID_PREFIX}{device.name}"
        client = BufferedClient(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv311)
        client.max_queued_messages_set(0)
        client.connect_timeout = CONNECT_SECONDS
        address = self._addresses.get(device.name, self._address)
        if address.credentials is not None:
            client.tls_set_context(address.credentials.tls_context())
        topic, will = device.will
        client.will_set(topic, will, qos=1, retain=True)
        self._watch(client)
        self._bind(client, device)
        client.connect(address.host, address.port, KEEP_ALIVE)
        return client

    def _watch(self, client: paho.Client) -> None:
        """Register the client's socket, for writing too while something waits to be written."""
        selector = self._selector

        def opened(client: paho.Client, data: Any, socket: Any) -> None:
            selector.register(socket, selectors.EVENT_READ, client)

        def closed(client: paho.Client, data: Any, socket: Any) -> None:
            selector.unregister(socket)

        def waits(client: paho.Client, data: Any, socket: Any) -> None:
            selector.modify(socket, selectors.EVENT_READ | selectors.EVENT_WRITE, client)

        def written(client: paho.Client, data: Any, socket: Any) -> None:
            selector.modify(socket, selectors.EVENT_READ, client)

        client.on_socket_open = opened
        client.on_socket_close = closed
        client.on_socket_register_write = waits
        client.on_socket_unregister_write = written

    def _bind(self, client: paho.Client, device: LightDevice) -> None:
        """Let a device and its client call each other."""
        pending: dict[int | None, str] = {}

        def publish(topic: str, payload: bytes, qos: int, retain: bool) -> None:
            self.bytes += len(payload)
            client.publish(topic, payload, qos, retain)

        def subscribe(topic_filter: str) -> None:
            pending[client.subscribe(topic_filter, 1)[1]] = topic_filter

        def unsubscribe(topic_filter: str) -> None:
            client.unsubscribe(topic_filter)

        def connected(*_: Any) -> None:
            self._online += 1
            device.connected()

        def disconnected(*_: Any) -> None:
            self.lost += not self._stopping.is_set()

        def take(client: paho.Client, data: Any, message: paho.MQTTMessage) -> None:
            self.bytes += len(message.payload)
            device.take(message.topic, bytes(message.payload))

        def granted(client: paho.Client, data: Any, number: int, *_: Any) -> None:
            device.subscribed(pending.pop(number, ""))

        device.publish, device.subscribe, device.unsubscribe = publish, subscribe, unsubscribe
        client.on_connect = connected
        client.on_disconnect = disconnected
        client.on_message = take
        client.on_subscribe = granted
