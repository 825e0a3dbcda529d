"""One MQTT connection: paho with guarded callbacks, and a window for chunks.

paho's network thread passes each message to a callback, which must not block, and continues with
acknowledgements and pings. The connection uses MQTT 3.1.1, QoS 1 unless stated otherwise, and clean
sessions: the broker keeps nothing but retained messages. With credentials, both sides are
authenticated (mutual TLS), and messages are signed.

paho reads each packet in three or more calls, and writes each packet in one of its own, with
another to wake its thread. Each call lets other threads take the interpreter, for up to 5 ms when
they are busy. With thousands of small messages this costs more than their handling, so
``BufferedClient`` reads ahead, and writes waiting packets at once.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MessageType, MQTTErrorCode
from paho.mqtt.reasoncodes import ReasonCode

from edgefed.config.fleet.broker_errors import (
    BROKER,
    NO_ADDRESS,
    denied,
    refused,
    revoked,
    silent,
    unreachable,
)
from edgefed.config.values.address import Address
from edgefed.errors import EdgeFedError, NotAllowedError, UnreachableError, WireError
from edgefed.process.clock import Clock, SystemClock
from edgefed.transport.inbox import Arrival, Incoming, LinkDown, LinkUp, Subscribed
from edgefed.trust.credentials import Credentials
from edgefed.trust.signatures import Signer
from edgefed.wire import limits
from edgefed.wire.envelope import encode
from edgefed.wire.messages import Message
from edgefed.wire.topics import CLIENT_ID_PREFIX

log = logging.getLogger(__name__)

KEEPALIVE = 30
STALLED_AFTER = 20.0
"""Seconds without any acknowledgement after which a connection that waits for one is ended and made
anew. A broker may answer pings and acknowledge nothing, and then paho would queue for ever."""

SLOWEST_BYTES = 1000
"""Bytes a second that a link carries at least: a large message may wait longer by its transfer."""

FULL_EVERY = 60.0
"""Seconds between two lines of the log about messages that a full queue did not take."""

MAX_INFLIGHT = 20
MAX_QUEUED = 4096
"""Most messages that wait to be sent: a task for each device of a fleet and more. They are small;
chunks never wait here, since their sender has a window of its own."""


class Link:
    """A connection that keeps itself up.

    Args:
        address: the broker; with credentials the connection uses TLS, and messages are signed.
        client_id: MQTT client id, without the prefix that all have; it must be unique, because the
            broker disconnects an older client of the same id, and unguessable for others.
        deliver: takes each arrival, on paho's thread; must not wait, as ``Inbox.put`` does not.
        will: topic and retained message that the broker publishes when this process dies.
        subscriptions: filters to (re)subscribe on every connection.
        jitter: random numbers for reconnect delays.
        clock: measures the time without acknowledgements; None for the system's.
        option: of the command line that names the broker; advice has it.
    """

    def __init__(
        self,
        address: Address,
        client_id: str,
        deliver: Callable[[Arrival], None],
        *,
        will: tuple[str, Message] | None = None,
        subscriptions: tuple[str, ...] = (),
        jitter: random.Random | None = None,
        clock: Clock | None = None,
        option: str = BROKER,
    ) -> None:
        self.address = address
        self._option = option
        credentials = address.credentials
        self.signer = None if credentials is None else Signer(credentials)
        self.connections = 0
        self.sent = 0
        self.received = 0
        self._deliver = deliver
        self._filters: dict[str, None] = dict.fromkeys(subscriptions)
        self._pending: dict[int, str] = {}
        self._lock = threading.Lock()
        self._window: deque[paho.MQTTMessageInfo] = deque()
        self._unacknowledged: deque[tuple[paho.MQTTMessageInfo, int]] = deque(maxlen=MAX_QUEUED)
        self._full_noted_at = -FULL_EVERY
        self._oldest: tuple[paho.MQTTMessageInfo, float] | None = None
        self._clock = clock or SystemClock()
        self._up = threading.Event()
        self._answered = threading.Event()
        self._closing = False
        self._asked = False
        self._refused = ""
        self._complained = ""
        self._will = will
        self._context = None if credentials is None else credentials.tls_context()
        self._client = self._make_client(client_id, jitter or random.Random())
        self._set_will()

    def _make_client(self, client_id: str, jitter: random.Random) -> BufferedClient:
        client = BufferedClient(
            CallbackAPIVersion.VERSION2,
            client_id=CLIENT_ID_PREFIX + client_id,
            protocol=paho.MQTTv311,
        )
        if self.address.user:
            client.username_pw_set(self.address.user, self.address.password)
        if self._context is not None:
            client.tls_set_context(self._context)
        client.max_inflight_messages_set(MAX_INFLIGHT)
        client.max_queued_messages_set(MAX_QUEUED)
        client.reconnect_delay_set(min_delay=1, max_delay=30 + jitter.randrange(30))
        client.on_socket_open = _no_delay
        client.on_connect = self._guard(self._on_connect)
        client.on_connect_fail = self._guard(self._on_connect_fail)
        client.on_disconnect = self._guard(self._on_disconnect)
        client.on_message = self._guard(self._on_message)
        client.on_subscribe = self._guard(self._on_subscribe)
        return client

    def _set_will(self) -> None:
        """Give the next connection its will, signed."""
        if self._will is not None:
            topic, message = self._will
            payload = encode(message, topic, self.signer)
            self._client.will_set(topic, payload, qos=1, retain=True)

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect in the background, and keep trying."""
        host, port = self.address.host, self.address.port
        self._client.connect_async(host, port, keepalive=KEEPALIVE)
        self._client.loop_start()

    def start_now(self, timeout: float) -> None:
        """Connect, or raise an error.

        Raises:
            UnreachableError: there is no answer within ``timeout`` seconds.
            NotAllowedError: the broker requires a login, or another one, or our certificate is
                revoked.
        """
        self._client.connect_timeout = timeout
        self._asked = True
        try:
            self._client.connect(self.address.host, self.address.port, keepalive=KEEPALIVE)
            self._client.loop_start()
            self._answered.wait(timeout)
        except (OSError, ValueError) as error:
            raise self.unreachable(_reason(error)) from error
        finally:
            self._asked = False
        if not self._up.is_set():
            why = self._refused
            self.stop()
            if why:
                raise refused(self.address, why, self._option)
            raise self._silent(f"within {timeout:.0f} s")

    def renew(self, credentials: Credentials) -> None:
        """Sign with other credentials from now on, and connect again with them.

        Not on paho's thread. The connection is closed regularly, so that the broker publishes no
        will; messages that it has not acknowledged are sent again.

        Raises:
            NotAllowedError: ``trust.credentials``: the files are being changed; nothing is done.
        """
        if self._context is None:
            return
        # First, since it may fail, and then nothing must have changed
        credentials.load_into(self._context)
        self._client.disconnect()
        self._client.loop_stop()
        self._client._reset_sockets(sockpair_only=True)  # loop_start makes others, closing none
        self._up.clear()
        self.signer = Signer(credentials)
        self._set_will()
        if not self._closing:
            self.start()

    def unreachable(self, reason: str) -> UnreachableError:
        """Return the error for a broker that does not answer."""
        return unreachable(self.address, reason, self._option)

    def _silent(self, when: str) -> UnreachableError | NotAllowedError:
        """Return the error for a connection without an answer; the broker may have said why."""
        return revoked(self.address) if self._client.revoked else silent(self.address, when)

    def stop(self, timeout: float = 3.0) -> None:
        """Send pending chunks, disconnect, and end the thread."""
        self._closing = True
        with contextlib.suppress(ValueError, RuntimeError):
            if self._up.is_set() and self._window:
                self._window[-1].wait_for_publish(timeout)
        self._client.disconnect()
        self._client.loop_stop()
        self._client._reset_sockets(sockpair_only=True)  # else until it is garbage
        self._up.clear()

    @property
    def connected(self) -> bool:
        """Whether the broker answers now."""
        return self._up.is_set()

    def wait_until_connected(self, timeout: float) -> bool:
        """Wait until the broker answers; return whether it does."""
        return self._up.wait(timeout)

    @property
    def refused(self) -> str:
        """Why the broker last refused the connection, such as a wrong password; empty when not."""
        return self._refused

    # -- sending ------------------------------------------------------------------------------

    def send(
        self, topic: str, message: Message, *, qos: int = 1, retain: bool = False
    ) -> paho.MQTTMessageInfo:
        """Publish a message, signed where this party has credentials; otherwise as ``publish``.

        Raises:
            WireError: it cannot be encoded, or is too large.
        """
        payload = encode(message, topic, self.signer)
        return self.publish(topic, payload, qos=qos, retain=retain)

    def publish(
        self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False
    ) -> paho.MQTTMessageInfo:
        """Publish a payload; it is kept and sent later when the connection is down (QoS 1).

        Raises:
            WireError: it is larger than a packet may be; a broker would cut the connection, and
                paho would send it again for ever.
        """
        if len(payload) > limits.MAX_MESSAGE_BYTES:
            raise WireError(
                f"A message of {len(payload)} bytes for {topic} is too large.",
                code="wire.too_large",
            )
        self.end_if_stalled()
        info = self._client.publish(topic, payload, qos=qos, retain=retain)
        self.sent += len(payload)
        if info.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
            self._note_full(topic)
        elif qos:
            self._window.append(info)
            # A message that paho queues waits for a connection, not for an acknowledgement
            if info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS:
                self._unacknowledged.append((info, len(payload)))
            while len(self._window) > MAX_INFLIGHT:
                self._window.popleft()
        return info

    def clear(self, *topics: str) -> None:
        """Delete the broker's retained messages on topics."""
        for topic in topics:
            self.publish(topic, b"", retain=True)

    def end_if_stalled(self) -> None:
        """End a connection without acknowledgements for too long; paho makes another one.

        ``publish`` checks this first. paho keeps messages that were not acknowledged, and sends
        them again.
        """
        waited = self._stalled_for()
        if not waited:
            return
        text = "%s acknowledged nothing for %.0f s; connecting again"
        log.warning(text, self.address, waited)
        connection = self._client.socket()
        if isinstance(connection, socket.socket):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # as it is below TLS

    def _note_full(self, topic: str) -> None:
        """Log that a message was dropped, at most once a minute."""
        now = self._clock.monotonic()
        if now - self._full_noted_at >= FULL_EVERY:
            self._full_noted_at = now
            log.warning("outgoing queue is full; a message to %s was dropped", topic)

    def _stalled_for(self) -> float:
        """Return for how long the oldest message has waited, or 0 if that is no stall.

        The time counts from when the message became the oldest. It begins anew with each connection
        and after each stall that was returned.
        """
        with self._lock:
            while self._unacknowledged and self._unacknowledged[0][0].is_published():
                self._unacknowledged.popleft()
            now = self._clock.monotonic()
            if not self._unacknowledged or not self._up.is_set():
                self._oldest = None
                return 0.0
            oldest, size = self._unacknowledged[0]
            if self._oldest is None or self._oldest[0] is not oldest:
                self._oldest = oldest, now
            waited = now - self._oldest[1]
            if waited < STALLED_AFTER + size / SLOWEST_BYTES:
                return 0.0
            # Counted anew, so that one stall does not end two connections
            self._oldest = oldest, now
            return waited

    # -- subscriptions ------------------------------------------------------------------------

    def subscribe(self, topic_filter: str) -> None:
        """Subscribe now and after every reconnection; ``Subscribed`` arrives with the answer."""
        with self._lock:
            # Under one lock with on_connect, so each connection subscribes to a filter once
            self._filters[topic_filter] = None
            if self._up.is_set():
                self._subscribe([topic_filter])

    def unsubscribe(self, topic_filter: str) -> None:
        """Undo ``subscribe``."""
        with self._lock:
            self._filters.pop(topic_filter, None)
            if self._up.is_set():
                self._client.unsubscribe(topic_filter)

    def _subscribe(self, filters: list[str]) -> None:
        for topic_filter in filters:
            _, mid = self._client.subscribe(topic_filter, qos=1)
            if mid is not None:
                # on_subscribe waits for the lock, so the answer finds its number here
                self._pending[mid] = topic_filter

    # -- paho's callbacks ---------------------------------------------------------------------

    def _guard(self, callback: Callable[..., None]) -> Callable[..., None]:
        """Wrap a callback: an exception would end paho's thread in silence."""

        def guarded(*arguments: Any) -> None:
            try:
                callback(*arguments)
            except Exception:
                log.exception("error in an MQTT callback")

        return guarded

    def _on_connect(
        self, client: paho.Client, data: Any, flags: Any, reason: ReasonCode, properties: Any
    ) -> None:
        del client, data, flags, properties
        if reason.is_failure:
            self._refused = str(reason).lower()
            self._answered.set()
            self._complain(refused(self.address, self._refused, self._option))
            return
        self._refused, self._complained, self._client.revoked = "", "", False
        with self._lock:
            # Answers of the earlier connection do not come any more
            self._pending.clear()
            self.connections += 1
            self._up.set()
            self._answered.set()
            self._subscribe(list(self._filters))
        self._deliver(LinkUp())

    def _on_connect_fail(self, client: paho.Client, data: Any) -> None:
        del client, data
        self._refused = ""
        reason = _reason(sys.exc_info()[1])  # paho calls from where it caught it
        self._complain(self.unreachable(reason))

    def _complain(self, error: EdgeFedError) -> None:
        """Log why there is no connection, once an outage; ``start_now`` raises it instead."""
        if error.message != self._complained and not (self._closing or self._asked):
            self._complained = error.message
            message = error.message.rstrip(".")
            log.warning("%s; trying again  [%s]; try: %s", message, error.code, error.hint)

    def _on_disconnect(
        self, client: paho.Client, data: Any, flags: Any, reason: ReasonCode, properties: Any
    ) -> None:
        del client, data, flags, properties
        was_up = self._up.is_set()
        self._up.clear()
        if was_up and not self._closing:
            self._deliver(LinkDown(str(reason)))
        elif not was_up and not self._refused:  # such as a revoked certificate, or TLS there
            self._complain(self._silent("before it was ended"))

    def _on_message(self, client: paho.Client, data: Any, message: paho.MQTTMessage) -> None:
        del client, data
        self.received += len(message.payload)
        self._deliver(Incoming(message.topic, bytes(message.payload), message.retain))

    def _on_subscribe(
        self, client: paho.Client, data: Any, mid: int, reasons: Any, properties: Any
    ) -> None:
        del client, data, properties
        with self._lock:
            answered = self._pending.pop(mid, None)
        if answered is None:
            return
        granted = not any(reason.is_failure for reason in reasons)
        if not granted:
            error = denied(self.address, answered)
            log.warning("%s  [%s]; try: %s", error.message, error.code, error.hint)
        self._deliver(Subscribed(answered, granted))


def _no_delay(client: paho.Client, data: Any, connection: Any) -> None:
    """Switch Nagle's algorithm off: a request and its answer take 88 ms with it, 0.5 ms without."""
    del client, data
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _reason(error: BaseException | None) -> str:
    """Return the reason in words, without the system's error number."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was not accepted: {error.verify_message}"
    if isinstance(error, socket.gaierror):
        return f"{NO_ADDRESS} ({error.strerror})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


READ_BYTES = 64 * 1024
"""Bytes that are read at a time, and written."""

READ_IN_A_ROW = 32
"""Packets after which those that wait to be written have their turn."""

_JOINED = (MessageType.PUBLISH, MessageType.PUBACK)
"""Packets after whose writing paho has nothing to do."""


class BufferedClient(paho.Client):
    """A client whose network thread reads and writes several packets with one system call.

    Attributes:
        revoked: whether the broker has ended a connection because our certificate is revoked.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ahead = memoryview(b"")
        self._ahead_of: object = None
        self.revoked = False

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Handle the packets that have been read from the socket, and write the answers."""
        status, count = super().loop_read(max_packets), 1
        # Bytes read ahead do not make the socket readable again, so they are handled at once
        while not status and self._ahead and self._sock is not None:
            if count % READ_IN_A_ROW == 0 and self.want_write():
                status = self.loop_write()
            status = status or super().loop_read(max_packets)
            count += 1
        if not status and self._sock is not None and self.want_write():
            return self.loop_write()
        return status

    def _sock_recv(self, bufsize: int) -> bytes:
        """Return bytes of the connection, which are read ahead."""
        if self._sock is not self._ahead_of:
            # Bytes of an earlier connection are not continued by this one
            self._ahead, self._ahead_of = memoryview(b""), self._sock
        if not self._ahead:
            try:
                self._ahead = memoryview(super()._sock_recv(max(bufsize, READ_BYTES)))
            except ssl.SSLError as error:  # paho only logs it
                self.revoked |= "CERTIFICATE_REVOKED" in (error.reason or "")
                raise
        part, self._ahead = self._ahead[:bufsize], self._ahead[bufsize:]
        return bytes(part)

    def _packet_queue(
        self,
        command: int,
        packet: bytes | bytearray,
        mid: int,
        qos: int,
        info: paho.MQTTMessageInfo | None = None,
    ) -> MQTTErrorCode:
        """Queue a packet; the network thread, which writes it, is awake when it queues one."""
        if threading.current_thread() is not self._thread:
            return super()._packet_queue(command, packet, mid, qos, info)
        self._out_packet.append(_waiting(command, bytes(packet), mid, qos, info))
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _packet_write(self) -> MQTTErrorCode:
        """Write all packets that wait, those in a row at once."""
        joined: list[bytes | bytearray] = []
        room = READ_BYTES
        while self._out_packet:
            first = self._out_packet[0]
            room -= first["to_process"]
            # A packet that is partly written has to be continued alone
            if room < 0 or first["pos"] or first["command"] & 0xF0 not in _JOINED:
                break
            joined.append(first["packet"])
            if first["info"] is not None and not first["qos"]:
                first["info"]._set_as_published()  # nobody acknowledges it
            self._out_packet.popleft()
        if joined:
            packet = b"".join(joined)
            # As a kind after whose writing paho has nothing to do
            self._out_packet.appendleft(_waiting(MessageType.PUBACK, packet, 0, 1))
        return super()._packet_write()


def _waiting(
    command: int, packet: bytes, mid: int, qos: int, info: paho.MQTTMessageInfo | None = None
) -> Any:
    """Return an entry of paho's queue."""
    return {
        "command": command,
        "mid": mid,
        "qos": qos,
        "pos": 0,
        "to_process": len(packet),
        "packet": packet,
        "info": info,
    }
