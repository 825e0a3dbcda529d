"""The parts of the chaos benchmark: schedule, records of trainings, clocks and disturbed links."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.chaos.schedule import KINDS, LONG_FREEZE, LONGEST, schedule
from benchmarks.chaos.training_record import Trainings, trainings
from edgefed.simulator.local_fleet import device_names
from tests.faults.faulty_link import FaultyLink
from tests.faults.mqtt_packets import PacketSplitter, is_message, unacknowledged_copy
from tests.faults.shifted_clock import ShiftedClocks, can_shift_clocks

DEVICES = device_names(8)
RATE = 1e9


def publish(topic: str, payload: bytes, *, qos: int = 1, packet_id: int = 7) -> bytes:
    """Return the packet of a message, with a length of one or two digits."""
    body = len(topic).to_bytes(2, "big") + topic.encode()
    body += (packet_id.to_bytes(2, "big") if qos else b"") + payload
    size = len(body)
    length = bytes([size]) if size < 128 else bytes([size % 128 | 128, size // 128])
    return bytes([0x30 | qos << 1]) + length + body


def test_a_schedule_follows_from_its_seed_and_every_ten_faults_are_of_every_kind() -> None:
    one, same = list(schedule(3, 40, DEVICES)), list(schedule(3, 40, DEVICES))
    assert one == same
    assert one != list(schedule(4, 40, DEVICES))
    for first in range(0, 40, 10):
        assert {fault.kind for fault in one[first : first + 10]} == set(KINDS)
    assert {fault.part for fault in one} > {"coordinator", "broker"}
    for fault in one:
        assert fault.seconds <= LONGEST[fault.kind] or fault.seconds == LONG_FREEZE
        assert fault.part != "broker" or fault.kind in ("kill", "freeze", "restart", "clock")
    lacking = list(schedule(3, 40, DEVICES, ["disk", "clock"]))
    assert {fault.kind for fault in lacking} == set(KINDS) - {"disk", "clock"}


def test_a_training_after_a_kill_is_no_second_one_but_one_after_its_reply_is() -> None:
    assert trainings(["begun 1 a", "ended 1 a", "kept 1 a"]) == Trainings(tasks=1)
    killed = ["begun 1 a", "begun 2 a", "ended 2 a", "kept 2 a"]
    assert trainings(killed) == Trainings(tasks=1, repeated=1)
    again = ["begun 1 a", "ended 1 a", "kept 1 a", "begun 2 a"]
    assert trainings(again) == Trainings(tasks=1, twice=("a",))
    unwritten = ["begun 1 a", "ended 1 a", "begun 1 a"]
    assert trainings(unwritten) == Trainings(tasks=1, twice=("a",))
    left = ["begun 1 a", "begun 1 b", "begun 1 a"]
    assert trainings(left) == Trainings(tasks=2, given_up=1)
    assert trainings(killed).plus(trainings(again)) == Trainings(2, 1, ("a",), 0)


def test_packets_are_split_wherever_the_stream_is_cut() -> None:
    packets = [publish("a/b", b"x" * 300), b"\xc0\x00", publish("c", b"y", qos=0)]
    for size in (1, 2, 7, 1000):
        splitter, stream = PacketSplitter(), b"".join(packets)
        pieces = [stream[place : place + size] for place in range(0, len(stream), size)]
        assert [each for piece in pieces for each in splitter.take(piece)] == packets
    assert [is_message(each) for each in packets] == [True, False, True]


def test_a_copy_of_a_message_is_not_acknowledged() -> None:
    for payload in (b"z", b"z" * 200):
        copied = publish("a/b", payload, qos=0)
        assert unacknowledged_copy(publish("a/b", payload)) == copied
        assert unacknowledged_copy(copied) == copied


@pytest.mark.skipif(not can_shift_clocks(), reason="clocks cannot be shifted here")
def test_the_wall_clock_of_a_running_process_jumps_and_its_monotonic_one_does_not(
    tmp_path: Path,
) -> None:
    clocks = ShiftedClocks(tmp_path)
    program = "import time\nwhile input():\n print(time.time(), time.monotonic(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **clocks.environment("one")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def shift() -> float:
            """Return how far its wall clock is from its monotonic one, seen from ours."""
            assert process.stdin is not None
            assert process.stdout is not None
            print("go", file=process.stdin, flush=True)
            wall, monotonic = map(float, process.stdout.readline().split())
            return wall - monotonic - (time.time() - time.monotonic())

        assert abs(shift()) < 60
        clocks.jump("one", -86400)
        clocks.jump("another", 3600)
        assert abs(shift() + 86400) < 60
        clocks.jump("one", 0)
        assert abs(shift()) < 60
        process.kill()


@contextmanager
def linked() -> Iterator[tuple[FaultyLink, socket.socket, socket.socket]]:
    """A link, its client and its broker, connected."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = FaultyLink(listener.getsockname()[1], down=RATE, up=RATE, reads=True)
        with socket.create_connection(("127.0.0.1", link.port)) as client:
            broker, _ = listener.accept()
            client.settimeout(60)
            broker.settimeout(60)
            with broker:
                yield link, client, broker
        link.close()


def received(end: socket.socket, size: int) -> bytes:
    """Return so many bytes, or those up to the end of the connection."""
    data = b""
    while len(data) < size:
        try:
            piece = end.recv(size - len(data))
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece
    return data


def test_a_link_carries_everything_as_it_is_without_faults() -> None:
    message = publish("a", b"m" * 100)
    with linked() as (_, client, broker):
        client.sendall(message)
        broker.sendall(b"\x40\x02\x00\x07")
        assert received(broker, len(message)) == message
        assert received(client, 4) == b"\x40\x02\x00\x07"


def test_a_truncating_link_cuts_a_message_in_the_middle() -> None:
    message = publish("a", b"m" * 100)
    with linked() as (link, client, broker):
        link.truncate()
        client.sendall(message)
        assert received(broker, len(message)) == message[: len(message) // 2]


def test_a_cut_link_refuses_until_it_is_restored() -> None:
    with linked() as (link, client, _):
        link.cut()
        assert received(client, 1) == b""
        with socket.create_connection(("127.0.0.1", link.port)) as refused:
            refused.settimeout(60)
            assert received(refused, 1) == b""
        link.restore()


def test_a_link_repeats_messages_and_nothing_else() -> None:
    message, ping = publish("a", b"one"), b"\xc0\x00"
    copied = unacknowledged_copy(message)
    with linked() as (link, client, broker):
        link.repeat(1.0)
        client.sendall(ping + message)
        wanted = ping + message + copied
        assert received(broker, len(wanted)) == wanted
        assert link.repeated == 1
        link.restore()
        client.sendall(message + ping)
        assert received(broker, len(message + ping)) == message + ping


def test_later_packets_overtake_messages_and_all_arrive() -> None:
    messages = [publish("a", b"%d" % number) for number in range(3)]
    with linked() as (link, client, broker):
        link.reorder(1.0)
        client.sendall(b"".join(messages) + b"\xc0\x00")
        assert received(broker, 2) == b"\xc0\x00"
        rest = received(broker, len(b"".join(messages)))
        assert rest == b"".join(messages[::-1])
        assert link.reordered == 3
