"""A plain MQTT client that tests a broker: one connection, without reconnecting."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, cast

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from broker.address import connect_host
from edgefed.config.fleet.broker_errors import refused, silent, unreachable
from edgefed.config.values.address import Address

_KEEPALIVE_SECONDS = 30

Message = tuple[str, bytes | bytearray, bool]
"""Topic, payload, and whether it was retained."""


class Probe:
    """One connected client; ``close`` or ``drop`` it.

    Args:
        address: the broker.
        timeout: seconds for every single answer of the broker.
        client_id: the MQTT client id.
        will: topic and payload of a retained last will.
        tls: for a broker with TLS; with the client's certificate, if it has one.

    Raises:
        UnreachableError: there is no answer, or the other side is not an MQTT broker.
        NotAllowedError: the broker refuses the connection.
    """

    def __init__(
        self,
        address: Address,
        timeout: float,
        client_id: str,
        *,
        will: tuple[str, bytes] | None = None,
        tls: ssl.SSLContext | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address, self._timeout, self._monotonic = address, timeout, monotonic
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._passed: list[Message] = []
        self._granted: queue.SimpleQueue[list[bool]] = queue.SimpleQueue()
        self._answered = threading.Event()
        self._outcome: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._refused: str | None = None
        self._client = Client(
            CallbackAPIVersion.VERSION2, client_id=client_id, reconnect_on_failure=False
        )
        if address.user:
            self._client.username_pw_set(address.user, address.password)
        self._tls = tls
        if tls is not None:
            self._client.tls_set_context(tls)
        self._client.connect_timeout = timeout
        if will is not None:
            self._client.will_set(*will, qos=1, retain=True)
        self._listen()
        self._connect()

    def subscribe(self, *filters: str) -> list[bool]:
        """Subscribe with QoS 1, in one packet; return which subscriptions the broker grants.

        Raises:
            UnreachableError: it does not answer.
        """
        self._granted = queue.SimpleQueue()
        self._client.subscribe([(topic_filter, 1) for topic_filter in filters])
        try:
            return self._granted.get(timeout=self._timeout)
        except queue.Empty:
            raise silent(self._address, "to a subscription") from None

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Hand a message with QoS 1 to the network."""
        self._client.publish(topic, payload, qos=1, retain=retain)

    def receives(
        self, topic: str, payload: bytes, *, retained: bool = False, timeout: float | None = None
    ) -> bool:
        """Whether that message arrives; others are skipped, and ``heard`` returns them."""
        deadline = self._monotonic() + (self._timeout if timeout is None else timeout)
        while True:
            left = deadline - self._monotonic()
            try:
                got = self._messages.get(timeout=max(0.0, left))
            except queue.Empty:
                return False
            if got[:2] == (topic, payload) and (got[2] or not retained):
                return True
            self._passed.append(got)

    def flush(self, topic: str, payload: bytes) -> bool:
        """Publish a message and return whether the broker acknowledged it."""
        self._outcome = queue.SimpleQueue()
        self.publish(topic, payload)
        try:
            return not self._outcome.get(timeout=self._timeout)
        except queue.Empty:
            return False

    def heard(self) -> list[Message]:
        """Return the messages that have arrived and were not awaited."""
        while not self._messages.empty():
            self._passed.append(self._messages.get())
        return self._passed

    def ends(self) -> bool:
        """Whether the broker ends the connection."""
        return self._ended.wait(self._timeout)

    @property
    def is_connected(self) -> bool:
        """Whether the connection has not ended."""
        return not self._ended.is_set()

    def is_cut_by(self, topic: str, payload: bytes, *, retain: bool = False) -> bool:
        """Whether the broker ends the connection over this message instead of taking it."""
        self._outcome = queue.SimpleQueue()
        self.publish(topic, payload, retain=retain)
        try:
            return self._outcome.get(timeout=self._timeout)
        except queue.Empty:
            return False

    def drop(self) -> None:
        """Close the connection without a DISCONNECT, as at a power failure."""
        sock = self._client.socket()
        if sock is not None:
            cast("socket.socket", sock).shutdown(socket.SHUT_RDWR)
        self._ended.wait(self._timeout)
        self._client.loop_stop()

    def close(self) -> None:
        """Disconnect and end the network thread."""
        self._client.disconnect()
        self._client.loop_stop()

    def _connect(self) -> None:
        try:
            self._try_handshake()
            self._client.connect(
                connect_host(self._address), self._address.port, keepalive=_KEEPALIVE_SECONDS
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise unreachable(self._address, str(reason or error)) from error
        self._client.loop_start()
        self._answered.wait(self._timeout)
        if self._refused == "":
            return
        self.close()
        if self._refused is None:
            raise silent(self._address, "to the login")
        raise refused(self._address, self._refused.lower())

    def _try_handshake(self) -> None:
        """Raise the error that prevents TLS; paho would leave its socket open."""
        if self._tls is None:
            return
        host = connect_host(self._address)
        with (
            socket.create_connection((host, self._address.port), self._timeout) as plain,
            self._tls.wrap_socket(plain, server_hostname=host),
        ):
            pass

    def _listen(self) -> None:
        def opened(client: Client, _: object, sock: Any) -> None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def connected(
            client: Client, _: object, flags: ConnectFlags, code: ReasonCode, __: Properties | None
        ) -> None:
            self._refused = str(code) if code.is_failure else ""
            self._answered.set()

        def ended(
            client: Client,
            _: object,
            flags: DisconnectFlags,
            code: ReasonCode,
            __: Properties | None,
        ) -> None:
            self._ended.set()
            self._answered.set()
            self._outcome.put(True)

        def subscribed(
            client: Client, _: object, mid: int, codes: list[ReasonCode], __: Properties | None
        ) -> None:
            self._granted.put([not code.is_failure for code in codes])

        def arrived(client: Client, _: object, message: MQTTMessage) -> None:
            self._messages.put((message.topic, message.payload, message.retain))

        self._client.on_socket_open = opened
        self._client.on_connect = connected
        self._client.on_disconnect = ended
        self._client.on_message = arrived
        self._client.on_publish = lambda *_: self._outcome.put(False)
        self._client.on_subscribe = subscribed
