"""The client that reads ahead: order, acknowledgements, few calls, nothing of an old socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from broker.address import LOOPBACK
from edgefed.config.values.address import Address
from edgefed.transport.inbox import LinkUp
from edgefed.transport.link import READ_BYTES, BufferedClient, Link
from tests.faults.mqtt_packets import PacketSplitter
from tests.transport.listening import PATIENCE, Inbox, wait_until

CONNACK = b"\x20\x02\x00\x00"
PUBACK = 0x40
INVALID = b"\xf0\x00"
"""A packet of a reserved type, after which a client ends the connection."""


def publish(number: int, payload: bytes) -> bytes:
    """A message of QoS 1 on the topic ``t``."""
    body = b"\x00\x01t" + struct.pack("!H", number) + payload
    size, length = len(body), b""
    while size >= 128:
        length += bytes([size % 128 | 128])
        size //= 128
    return b"\x32" + length + bytes([size]) + body


class Broker:
    """A listener whose packets a test writes byte by byte."""

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))
        self._listener.settimeout(PATIENCE)
        self.address = Address(LOOPBACK, self._listener.getsockname()[1])

    def accept(self) -> socket.socket:
        """Return the next connection, after its CONNECT."""
        connection, _ = self._listener.accept()
        connection.settimeout(PATIENCE)
        assert connection.recv(4096)[0] == 0x10
        return connection

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.close()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The system calls of all clients on their sockets."""
    counts = {"recv": 0, "send": 0}
    receive, send = paho.Client._sock_recv, paho.Client._sock_send

    def counted_recv(client: paho.Client, size: int) -> bytes:
        counts["recv"] += 1
        return receive(client, size)

    def counted_send(client: paho.Client, data: bytes | bytearray) -> int:
        counts["send"] += 1
        return send(client, data)

    monkeypatch.setattr(paho.Client, "_sock_recv", counted_recv)
    monkeypatch.setattr(paho.Client, "_sock_send", counted_send)
    return counts


def test_a_burst_is_read_and_acknowledged_in_order_with_few_calls(
    broker: Broker, calls: dict[str, int]
) -> None:
    sizes = [1, 127, 128, 300, READ_BYTES - 1, READ_BYTES + 1, *range(94)]
    payloads = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    inbox = Inbox()
    link = Link(broker.address, "one", inbox)
    link.start()
    with broker.accept() as connection:
        connection.sendall(CONNACK)
        inbox.wait(LinkUp)
        before = dict(calls)
        connection.sendall(b"".join(publish(n + 1, data) for n, data in enumerate(payloads)))
        splitter, acknowledged = PacketSplitter(), list[int]()
        while len(acknowledged) < len(payloads):
            packets = splitter.take(connection.recv(4096))
            acknowledged += [int.from_bytes(p[2:], "big") for p in packets if p[0] == PUBACK]
        assert acknowledged == [number + 1 for number in range(len(payloads))]
        assert [message.payload for message in inbox.messages()] == payloads
        assert calls["recv"] - before["recv"] < 50, "paho makes three or more for each message"
        assert calls["send"] - before["send"] < 50, "paho makes one for each message"
        link.stop()


def test_what_was_read_ahead_of_a_connection_that_ended_is_not_read(broker: Broker) -> None:
    inbox = Inbox()
    link = Link(broker.address, "one", inbox)
    link.start()
    with broker.accept() as connection:
        connection.sendall(CONNACK + INVALID + publish(1, b"old"))
        with suppress(ConnectionResetError):
            assert connection.recv(4096) == b""
    with broker.accept() as connection:
        connection.sendall(CONNACK + publish(1, b"new"))
        wait_until(lambda: bool(inbox.messages()), "the message")
        assert [message.payload for message in inbox.messages()] == [b"new"]
        link.stop()


def test_a_message_without_acknowledgement_counts_as_published_once_it_is_sent(
    broker: Broker,
) -> None:
    client = BufferedClient(CallbackAPIVersion.VERSION2, "one")
    client.connect_async(broker.address.host, broker.address.port)
    client.loop_start()
    with broker.accept() as connection:
        connection.sendall(CONNACK)
        wait_until(client.is_connected, "the connection")
        sent = [client.publish("t", bytes([number]), qos=number % 2) for number in range(4)]
        splitter, packets = PacketSplitter(), list[bytes]()
        while len(packets) < len(sent):
            packets += splitter.take(connection.recv(4096))
        assert [packet[-1] for packet in packets] == [0, 1, 2, 3]
        wait_until(sent[2].is_published, "the last one")
        assert [info.is_published() for info in sent] == [True, False, True, False]
        client.disconnect()
        client.loop_stop()
