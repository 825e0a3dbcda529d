"""A connection on which nothing is acknowledged any more is made anew, and nothing is lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import pytest
from paho.mqtt.client import MQTTMessageInfo

from benchmarks.fuzzing.fleet import UnconnectedLink
from broker.address import LOOPBACK
from broker.mosquitto import MosquittoBroker
from edgefed.config.values.address import Address
from edgefed.transport.inbox import Inbox as Arrivals
from edgefed.transport.inbox import LinkDown, LinkUp
from edgefed.transport.link import MAX_INFLIGHT, SLOWEST_BYTES, STALLED_AFTER, Link
from edgefed.wire.limits import CHUNK_BYTES
from tests.coordinator.light_devices import HandClock
from tests.transport.listening import PATIENCE, Inbox, linked, wait_until

pytestmark = pytest.mark.mosquitto

PUBACK = 4


class Swallower:
    """A proxy before a real broker that can keep acknowledgements back, and passes all else on.

    Attributes:
        swallows: whether it keeps them back.
        swallowed: how many it has kept back.
    """

    def __init__(self, broker: Address) -> None:
        self.swallows, self.swallowed = False, 0
        self._broker = broker
        self._listener = socket.create_server((LOOPBACK, 0))
        self.address = Address(LOOPBACK, self._listener.getsockname()[1])
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._broker.host, self._broker.port))
                self._sockets += [client, server]
                for work, pair in ((self._up, (client, server)), (self._down, (server, client))):
                    threading.Thread(target=work, args=pair, daemon=True).start()

    def _up(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for each in (source, sink):
            each.close()

    def _down(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError, ValueError), source.makefile("rb") as packets:
            while packet := _packet(packets.read):
                if packet[0] >> 4 == PUBACK and self.swallows:
                    self.swallowed += 1
                else:
                    sink.sendall(packet)
        sink.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends a waiting accept, which close does not
        for each in self._sockets:
            each.close()


def _packet(read: object) -> bytes:
    """Read one packet of MQTT; empty at the end."""
    assert callable(read)
    head = bytes(read(2))
    while head and head[-1] & 128:
        head += read(1)
    size = sum((byte & 127) << (7 * place) for place, byte in enumerate(head[1:]))
    return head + bytes(read(size))


@contextmanager
def swallower(broker: Address) -> Iterator[Swallower]:
    made = Swallower(broker)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def through(proxy: Swallower, clock: HandClock) -> Iterator[tuple[Link, Inbox]]:
    inbox = Inbox()
    link = Link(proxy.address, "stalled", inbox, clock=clock)
    link.start_now(PATIENCE)
    try:
        inbox.wait(LinkUp)
        yield link, inbox
    finally:
        link.stop()


def test_a_connection_without_acknowledgements_is_made_anew(
    mosquitto: MosquittoBroker, caplog: pytest.LogCaptureFixture
) -> None:
    clock, count = HandClock(), 3 * MAX_INFLIGHT  # more than paho sends without an acknowledgement
    with (
        linked(mosquitto.address, "listener", "s/+") as (_, heard),
        swallower(mosquitto.address) as proxy,
        through(proxy, clock) as (link, inbox),
    ):
        proxy.swallows = True
        for number in range(count):
            link.publish(f"s/{number}", b"kept")
        wait_until(lambda: proxy.swallowed >= MAX_INFLIGHT, "the first messages")
        link.end_if_stalled()
        clock.seconds += STALLED_AFTER - 0.1
        link.end_if_stalled()
        assert not any(isinstance(each, LinkDown) for each in inbox.all)
        assert len({each.topic for each in heard.messages()}) < count, "paho waits"
        proxy.swallows = False
        clock.seconds += 0.2
        link.publish("s/last", b"kept")
        inbox.wait(LinkDown)
        inbox.wait(LinkUp)
        assert f"{link.address} acknowledged nothing for" in caplog.text
        wanted = {f"s/{number}" for number in range(count)} | {"s/last"}
        wait_until(lambda: {each.topic for each in heard.messages()} == wanted, "all of them")
        clock.seconds += 10 * STALLED_AFTER
        link.publish("s/later", b"")
        link.end_if_stalled()
        heard.wait(topic="s/later")
        assert link.connected


def test_a_connection_with_slow_acknowledgements_stays(mosquitto: MosquittoBroker) -> None:
    clock = HandClock()
    with swallower(mosquitto.address) as proxy, through(proxy, clock) as (link, inbox):
        for number in range(5):
            info = link.publish(f"slow/{number}", b"x")
            info.wait_for_publish(PATIENCE)
            clock.seconds += STALLED_AFTER - 0.1
        clock.seconds += 10 * STALLED_AFTER
        link.end_if_stalled()
        link.publish("slow/end", b"x").wait_for_publish(PATIENCE)
        assert not any(isinstance(each, LinkDown) for each in inbox.all)


def test_a_queue_that_moves_is_no_stall_however_long_it_is() -> None:
    clock = HandClock()
    link = UnconnectedLink(Arrivals[NoReturn](clock))
    link._clock = clock
    infos = [MQTTMessageInfo(number) for number in range(10)]
    link._unacknowledged.extend((info, 0) for info in infos)
    for info in infos[:-1]:
        assert not link._stalled_for()
        clock.seconds += STALLED_AFTER - 1
        info._set_as_published()
    assert not link._stalled_for()
    clock.seconds += STALLED_AFTER
    assert link._stalled_for() == STALLED_AFTER
    assert not link._stalled_for(), "it is told once, and then again after as long"


def test_a_large_message_on_a_slow_link_may_take_its_time() -> None:
    clock = HandClock()
    link = UnconnectedLink(Arrivals[NoReturn](clock))
    link._clock = clock
    link._unacknowledged.append((MQTTMessageInfo(1), CHUNK_BYTES))
    assert not link._stalled_for()
    clock.seconds += STALLED_AFTER + CHUNK_BYTES / SLOWEST_BYTES - 1
    assert not link._stalled_for()
    clock.seconds += 1
    assert link._stalled_for()
