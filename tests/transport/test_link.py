from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker
from edgefed.config.values.address import Address
from edgefed.errors import UnreachableError, WireError
from edgefed.transport.inbox import Arrival, Incoming, LinkDown, LinkUp, Subscribed
from edgefed.transport.link import Link
from edgefed.wire.envelope import encode
from edgefed.wire.limits import MAX_MESSAGE_BYTES
from edgefed.wire.messages import Cancel
from tests.broker.servers import USER, running
from tests.broker.tls_fleet import build_plugin
from tests.transport.listening import PATIENCE, Inbox, linked, wait_until


@pytest.mark.mosquitto
def test_small_messages_are_not_held_back(mosquitto: MosquittoBroker) -> None:
    with linked(mosquitto.address, "one") as (link, _):
        connection = link._client.socket()
        assert isinstance(connection, socket.socket)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


@pytest.mark.mosquitto
def test_a_message_arrives_and_both_sides_count_its_bytes(mosquitto: MosquittoBroker) -> None:
    with linked(mosquitto.address, "two", "a/+") as (link, inbox):
        link.publish("a/b", b"12345")
        assert inbox.wait(topic="a/b") == Incoming("a/b", b"12345", retained=False)
        assert (link.sent, link.received) == (5, 5)


@pytest.mark.mosquitto
def test_an_error_of_the_owner_does_not_end_the_connection(mosquitto: MosquittoBroker) -> None:
    got: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def deliver(arrival: Arrival) -> None:
        if isinstance(arrival, Subscribed):
            got.put(b"ready")
        if isinstance(arrival, Incoming):
            if arrival.payload == b"bad":
                raise RuntimeError("the owner stumbles")
            got.put(arrival.payload)

    link = Link(mosquitto.address, "three", deliver, subscriptions=("t",))
    link.start_now(PATIENCE)
    try:
        assert got.get(timeout=PATIENCE) == b"ready"
        link.publish("t", b"bad")
        link.publish("t", b"good")
        assert got.get(timeout=PATIENCE) == b"good"
        assert link.connected
    finally:
        link.stop()


@pytest.mark.mosquitto
def test_an_oversize_message_never_reaches_the_broker(mosquitto: MosquittoBroker) -> None:
    with linked(mosquitto.address, "four", "t") as (link, inbox):
        with pytest.raises(WireError) as caught:
            link.publish("t", bytes(MAX_MESSAGE_BYTES + 1))
        assert caught.value.code == "wire.too_large"
        link.publish("t", bytes(MAX_MESSAGE_BYTES))
        link.publish("t", b"last")
        assert len(inbox.wait(topic="t").payload) == MAX_MESSAGE_BYTES  # type: ignore[union-attr]
        assert inbox.wait(topic="t") == Incoming("t", b"last", retained=False)
        assert not [each for each in inbox.all if isinstance(each, LinkDown)]


@pytest.mark.mosquitto
def test_it_comes_back_after_the_broker_and_renews_its_subscriptions(tmp_path: Path) -> None:
    address = Address(LOOPBACK, free_port())
    first = MosquittoBroker(address, tmp_path / "first")
    inbox = Inbox()
    link = Link(address, "five", inbox, subscriptions=("kept", "dropped"))
    link.start_now(PATIENCE)
    try:
        link.subscribe("added")
        link.unsubscribe("dropped")
        wait_until(lambda: Subscribed("added") in inbox.all, "the subscription")
        first.stop()
        inbox.wait(LinkDown)
        assert not link.connected
        link.publish("kept", b"said while the broker was away")
        with MosquittoBroker(address, tmp_path / "second"):
            inbox.wait(LinkUp)
            assert {inbox.wait(Subscribed), inbox.wait(Subscribed)} == {
                Subscribed("kept"),
                Subscribed("added"),
            }
            link.publish("dropped", b"nobody listens")
            link.publish("added", b"new")
            inbox.wait(topic="added")
            topics = [each.topic for each in inbox.messages()]
            assert "dropped" not in topics
            link.publish("kept", b"end")
            while inbox.wait(topic="kept").payload != b"end":  # type: ignore[union-attr]
                pass
            said = [each.payload for each in inbox.messages() if each.topic == "kept"]
            assert said == [b"said while the broker was away", b"end"]
    finally:
        link.stop()


PROGRAM = """
import sys, time
from edgefed.config.values.address import Address
from edgefed.transport.link import Link
from edgefed.wire.messages import Cancel
WILL = ("w", Cancel(exchange="gone"))
link = Link(Address("127.0.0.1", int(sys.argv[1])), "mortal", print, will=WILL)
link.start_now(30)
link.publish("w", b"here", retain=True)
time.sleep(600)
"""


GONE = encode(Cancel(exchange="gone"))


@pytest.mark.mosquitto
def test_a_killed_process_leaves_its_will(mosquitto: MosquittoBroker) -> None:
    with linked(mosquitto.address, "six", "w") as (_, inbox):
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(mosquitto.address.port)], stdout=subprocess.DEVNULL
        ) as process:
            assert inbox.wait(topic="w") == Incoming("w", b"here", retained=False)
            os.kill(process.pid, signal.SIGKILL)
        assert inbox.wait(topic="w") == Incoming(
            "w", encode(Cancel(exchange="gone")), retained=False
        )
    with linked(mosquitto.address, "seven", "w") as (_, inbox):
        assert inbox.wait(topic="w") == Incoming(
            "w", encode(Cancel(exchange="gone")), retained=True
        )


def test_a_closed_port_is_told_at_once() -> None:
    link = Link(Address(LOOPBACK, free_port()), "eight", Inbox())
    with pytest.raises(UnreachableError) as caught:
        link.start_now(timeout=10**6)
    assert caught.value.exit_code == 3
    assert caught.value.message == f"No MQTT broker at {link.address}: Connection refused."
    assert "--broker" in caught.value.hint


def test_who_accepts_but_never_answers_is_no_broker() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        link = Link(Address(LOOPBACK, server.getsockname()[1]), "nine", Inbox())
        with pytest.raises(UnreachableError, match="accepted, but there was no answer within 0 s"):
            link.start_now(0.2)


def test_who_ends_every_connection_before_an_answer_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        link = Link(Address(LOOPBACK, server.getsockname()[1]), "twelve", Inbox())
        link.start()
        try:
            for _ in range(3):  # the second attempt begins after the first was told
                server.accept()[0].close()
        finally:
            link.stop()
    (line,) = (record.getMessage() for record in caplog.records)
    assert "accepted, but there was no answer before it was ended; trying again" in line
    assert "[broker.unreachable]; try: another program uses this port" in line


def test_a_host_without_a_name_server_entry_is_told_in_words() -> None:
    link = Link(Address("no-such-host.invalid", 1883), "ten", Inbox())
    with pytest.raises(UnreachableError) as caught:
        link.start_now(5)
    assert "its name has no address here (" in caught.value.message
    assert "Errno" not in caught.value.message
    assert "getent hosts no-such-host.invalid" in caught.value.hint


@pytest.mark.mosquitto
def test_it_waits_for_a_broker_that_is_started_later(tmp_path: Path) -> None:
    address = Address(LOOPBACK, free_port())
    inbox = Inbox()
    link = Link(address, "eleven", inbox, subscriptions=("t",))
    link.start()
    try:
        with MosquittoBroker(address, tmp_path / "late"):
            inbox.wait(Subscribed)
            assert link.connected
    finally:
        link.stop()


@pytest.mark.mosquitto
def test_a_refused_subscription_is_told_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address, rules = Address(LOOPBACK, free_port()), tmp_path / "acl"
    rules.write_text("topic readwrite #\n")
    text = f"listener {address.port} {LOOPBACK}\nallow_anonymous true\nacl_file {rules}\n"
    text += f"plugin {build_plugin(tmp_path)}\n" + (f"user {USER}\n" if USER else "")
    with running(text, address, tmp_path), linked(address, "thirteen", "#", "t") as (link, inbox):
        link.publish("t", b"heard")
        assert inbox.wait(topic="t") == Incoming("t", b"heard", retained=False)
    answers = [each for each in inbox.all if isinstance(each, Subscribed)]
    assert answers == [Subscribed("#", granted=False), Subscribed("t", granted=True)]
    (line,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "refused the subscription to #" in line and "[broker.subscription]" in line
