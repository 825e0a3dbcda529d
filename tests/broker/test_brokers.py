"""Properties of both brokers."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.address import LOOPBACK, free_port, port_is_free
from broker.probe import Probe
from broker.start_broker import Kind, RunningBroker, start_broker
from edgefed.config.values.address import Address
from edgefed.errors import UsageError
from edgefed.wire.limits import CHUNK_BYTES, MAX_MESSAGE_BYTES, MAX_PACKET_BYTES
from tests.broker.clients import connected, is_gone, until

pytestmark = pytest.mark.parametrize(
    "kind", [pytest.param("mosquitto", marks=pytest.mark.mosquitto), "embedded"]
)


@pytest.fixture
def broker(kind: Kind, request: pytest.FixtureRequest) -> RunningBroker:
    running: RunningBroker = request.getfixturevalue(
        {"mosquitto": "mosquitto", "embedded": "embedded_broker"}[kind]
    )
    return running


@pytest.fixture
def start(
    kind: Kind, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[[int], RunningBroker]:
    """Start a broker of the kind on a port; it is ended with the test."""
    if kind == "embedded":
        pytest.importorskip("amqtt")

    def started(port: int) -> RunningBroker:
        running = start_broker(Address(LOOPBACK, port), tmp_path / "broker", kind)
        request.addfinalizer(running.stop)
        return running

    return started


def test_it_says_what_it_is(broker: RunningBroker, kind: Kind) -> None:
    assert broker.name == kind
    assert broker.is_running()
    assert not is_gone(broker.pid)


@pytest.mark.parametrize("user", ["", "cam-1"])
def test_messages_arrive_whole_and_in_order(broker: RunningBroker, user: str) -> None:
    payloads = [b"small", bytes(CHUNK_BYTES), b"x" * MAX_MESSAGE_BYTES]
    with connected(broker.address, user=user) as reader, connected(broker.address) as writer:
        reader.subscribe("edgefed/lab/+/c")
        for payload in payloads:
            writer.publish("edgefed/lab/all/c", payload)
        assert [reader.receive() for _ in payloads] == [
            ("edgefed/lab/all/c", payload) for payload in payloads
        ]


def test_a_client_that_sends_too_much_is_cut_off_alone(broker: RunningBroker) -> None:
    with connected(broker.address) as reader, connected(broker.address) as writer:
        reader.subscribe("a/#")
        writer.client.publish("a/large", bytes(MAX_PACKET_BYTES + 1), qos=1)
        assert until(writer.ended.is_set)
        with connected(broker.address) as other:
            other.publish("a/small", b"1")
        assert reader.receive() == ("a/small", b"1")


def test_retained_messages_go_to_who_subscribed_to_them(broker: RunningBroker) -> None:
    with connected(broker.address) as owner, connected(broker.address) as other:
        owner.publish("secret/key", b"retained", retain=True)
        owner.subscribe("secret/#")
        assert owner.receive() == ("secret/key", b"retained")
        with connected(broker.address) as late:
            late.subscribe("public/#")
            other.publish("public/note", b"1")
            assert late.receive() == ("public/note", b"1")


def test_a_fleet_that_comes_up_at_once_is_served(broker: RunningBroker) -> None:
    count = 40
    with ExitStack() as stack:
        fleet = [stack.enter_context(connected(broker.address)) for _ in range(count)]
        for index, device in enumerate(fleet):
            device.client.subscribe([("all/#", 1), (f"down/{index}/#", 1)])
            device.client.publish(f"all/{index}", bytes(1000), qos=1, retain=True)
        late = [stack.enter_context(connected(broker.address)) for _ in range(count)]
        for device in late:
            device.client.subscribe("all/#", qos=1)
        for device in (*fleet, *late):
            seen: set[str] = set()
            while len(seen) < count:
                seen.add(device.receive()[0])


def test_a_last_will_is_published_for_who_vanishes(broker: RunningBroker) -> None:
    with connected(broker.address) as reader:
        reader.subscribe("will/#")
        Probe(broker.address, 5.0, "gone", will=("will/gone", b"lost")).drop()
        assert reader.receive() == ("will/gone", b"lost")


def test_a_taken_port_is_refused_with_its_number(broker: RunningBroker, kind: Kind) -> None:
    with pytest.raises(UsageError) as caught:
        start_broker(broker.address, broker.log.parent / "second", kind)
    assert caught.value.code == "broker.port_in_use"
    assert str(broker.address.port) in caught.value.message
    assert broker.is_running()


def test_the_port_can_be_had_again_at_once(start: Callable[[int], RunningBroker]) -> None:
    first = start(free_port())
    with connected(first.address) as client:
        client.subscribe("a")
        first.stop()
        assert until(client.ended.is_set)
        second = start(first.address.port)
    with connected(second.address) as client:
        assert client.answer == "Success"
    assert second.pid != first.pid


def test_stop_ends_the_process_and_may_be_said_twice(broker: RunningBroker) -> None:
    broker.stop()
    broker.stop()
    assert not broker.is_running()
    assert is_gone(broker.pid)
    assert port_is_free(broker.address)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_nothing_is_left_of_a_broker_whose_parent_was_killed(kind: Kind, tmp_path: Path) -> None:
    if kind == "embedded":
        pytest.importorskip("amqtt")
    port = free_port()
    command = [sys.executable, "-m", "tests.broker.orphans", kind, str(tmp_path), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        # The thread that asked for the broker has ended, and the broker has not.
        with connected(Address(LOOPBACK, port)) as client:
            assert client.answer == "Success"
        parent.send_signal(signal.SIGKILL)
    assert until(lambda: is_gone(pid))
    assert until(lambda: port_is_free(Address(LOOPBACK, port)))
