from __future__ import annotations

import math
import socket
import threading
from pathlib import Path

import pytest

from broker.address import LOOPBACK, free_port
from broker.check import check
from broker.configuration import configuration
from broker.embedded import EmbeddedBroker
from broker.mosquitto import MosquittoBroker
from edgefed.config.values.address import Address
from edgefed.errors import NotAllowedError, UnreachableError
from edgefed.wire.limits import MAX_PACKET_BYTES
from tests.broker.clients import connected
from tests.broker.servers import USER, running


@pytest.mark.mosquitto
def test_mosquitto_carries_everything(mosquitto: MosquittoBroker) -> None:
    report = check(mosquitto.address, 10.0)
    assert report.ok
    assert report.packet_limit
    assert report.latency_ms > 0


def test_the_demo_broker_carries_everything(embedded_broker: EmbeddedBroker) -> None:
    report = check(embedded_broker.address, 10.0)
    assert report.ok
    assert report.packet_limit


@pytest.mark.mosquitto
def test_nothing_is_left_behind(mosquitto: MosquittoBroker) -> None:
    check(mosquitto.address, 10.0, fleet="lab")
    with connected(mosquitto.address) as client:
        client.subscribe("edgefed/#")
        client.publish("edgefed/end", b"")
        assert client.receive() == ("edgefed/end", b"")


@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("limit", "chunk", "largest", "packet_limit"),
    [(100_000, False, False, True), (130_000, True, False, True), (0, True, True, False)],
)
def test_limits_of_another_configuration_are_found(
    tmp_path: Path, limit: int, chunk: bool, largest: bool, packet_limit: bool
) -> None:
    address = Address(LOOPBACK, free_port())
    text = configuration(address, user=USER).replace(
        f"max_packet_size {MAX_PACKET_BYTES}", f"max_packet_size {limit}" if limit else ""
    )
    with running(text, address, tmp_path):
        report = check(address, 1.0)
    assert (report.chunk, report.largest) == (chunk, largest)
    assert report.packet_limit == packet_limit
    assert report.small
    assert report.ok == largest


@pytest.mark.mosquitto
def test_a_broker_that_drops_our_messages_fails(tmp_path: Path) -> None:
    address = Address(LOOPBACK, free_port())
    (tmp_path / "acl").write_text("topic read #\n")
    (tmp_path / "acl").chmod(0o600)
    text = configuration(address, acl=tmp_path / "acl", user=USER)
    with running(text, address, tmp_path):
        report = check(address, 0.1)
    assert not report.ok
    assert not report.small
    assert math.isnan(report.latency_ms)


@pytest.mark.mosquitto
def test_a_broker_that_wants_a_user_says_so(tmp_path: Path) -> None:
    address = Address(LOOPBACK, free_port())
    text = configuration(address, allow_anonymous=False, user=USER)
    with running(text, address, tmp_path), pytest.raises(NotAllowedError) as caught:
        check(address, 5.0)
    assert caught.value.code == "broker.refused"


def test_no_broker_is_named_with_what_to_do() -> None:
    address = Address(LOOPBACK, free_port())
    with pytest.raises(UnreachableError) as caught:
        check(address)
    assert caught.value.code == "broker.unreachable"
    assert str(address) in caught.value.message
    assert "edgefed broker up" in caught.value.hint


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_something_else_on_the_port_is_no_broker(answer: bytes) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:

        def serve() -> None:
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(1024)
                accepted.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(UnreachableError) as caught:
            check(Address(LOOPBACK, server.getsockname()[1]), 5.0)
        thread.join()
    assert caught.value.code == "broker.unreachable"
