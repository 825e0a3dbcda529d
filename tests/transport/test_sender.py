from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.transport import sender as sender_module
from edgefed.transport.inbox import LinkDown, LinkUp
from edgefed.transport.link import Link
from edgefed.transport.sender import PATIENCE, ChunkSender
from edgefed.wire.blobs import chunk
from edgefed.wire.envelope import decode, encode
from edgefed.wire.limits import CHUNK_BYTES, WINDOW_BROADCAST
from edgefed.wire.messages import Chunk
from edgefed.wire.tensors import digest
from tests.transport.listening import Inbox, linked, wait_until

DATA = bytes(range(256)) * (30 * CHUNK_BYTES // 256)
BLOB = digest(DATA)
WHOLE = len(encode(Chunk(digest=BLOB, index=0, data=chunk(DATA, 0))))


def pieces(inbox: Inbox) -> list[tuple[str, int]]:
    """Return the topic and the number of each chunk that has arrived."""
    arrived = [each for each in inbox.messages() if each.topic in ("a", "b")]
    return [(each.topic, decode(each.payload, Chunk).index) for each in arrived]


@contextmanager
def frozen(broker: MosquittoBroker) -> Iterator[None]:
    """A broker that answers nothing for the length of the block, and then everything."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it was killed meanwhile
            os.kill(broker.pid, signal.SIGCONT)


def sending(link: Link) -> Callable[[], bool]:
    return lambda: link.sent >= WINDOW_BROADCAST * WHOLE


@pytest.mark.mosquitto
def test_chunks_arrive_under_their_numbers(mosquitto: MosquittoBroker) -> None:
    with linked(mosquitto.address, "receiver", "a") as (_, inbox):
        with linked(mosquitto.address, "sender") as (link, _):
            sender = ChunkSender(link)
            sender.send("a", BLOB, DATA, range(30))
            wait_until(lambda: len(inbox.messages()) == 30, "all chunks")
            sender.stop()
        for number, message in enumerate(inbox.messages()):
            part = Chunk(digest=BLOB, index=number, data=chunk(DATA, number))
            assert (message.topic, decode(message.payload, Chunk)) == ("a", part)


@pytest.mark.mosquitto
def test_only_a_window_is_ever_unacknowledged(mosquitto: MosquittoBroker) -> None:
    with (
        linked(mosquitto.address, "receiver", "a", "small") as (_, inbox),
        linked(mosquitto.address, "sender") as (link, _),
    ):
        sender = ChunkSender(link)
        with frozen(mosquitto):
            sender.send("a", BLOB, DATA, range(30))
            wait_until(sending(link), "a window of chunks")
            time.sleep(0.3)  # time in which a ninth could go out
            assert link.sent == WINDOW_BROADCAST * WHOLE
            link.publish("small", b"urgent")
        wait_until(lambda: len(inbox.messages()) == 31, "all chunks")
        topics = [each.topic for each in inbox.messages()]
        assert topics.index("small") <= WINDOW_BROADCAST
        sender.stop()


@pytest.mark.mosquitto
def test_transfers_take_turns_and_a_waiting_chunk_is_not_queued_twice(
    mosquitto: MosquittoBroker,
) -> None:
    with linked(mosquitto.address, "receiver", "a", "b", "end") as (_, inbox):
        with linked(mosquitto.address, "sender") as (link, _):
            sender = ChunkSender(link)
            with frozen(mosquitto):
                sender.send("a", BLOB, DATA, range(30))
                wait_until(sending(link), "a window of chunks")
                sender.send("b", BLOB, DATA, range(10))
                sender.send("a", BLOB, DATA, [20, 21, 22, 23, 23])
                sender.send("b", BLOB, DATA, [9, 10, 10])
            wait_until(lambda: len(inbox.messages()) >= 41, "all chunks")
            link.publish("end", b"")
            wait_until(lambda: inbox.all[-1].topic == "end", "the end")  # type: ignore[union-attr]
            sender.stop()
        arrived = pieces(inbox)
        assert len(set(arrived)) == len(arrived) == 41
        # One chunk of a was already in the sender's hand when b was queued.
        turns = [topic for topic, _ in arrived[WINDOW_BROADCAST + 1 :][: 2 * 11]]
        assert turns in (["a", "b"] * 11, ["b", "a"] * 11)


@pytest.mark.mosquitto
def test_a_chunk_that_does_not_exist_ends_nothing(mosquitto: MosquittoBroker) -> None:
    with (
        linked(mosquitto.address, "receiver", "a") as (_, inbox),
        linked(mosquitto.address, "sender") as (link, _),
    ):
        sender = ChunkSender(link)
        sender.send("a", BLOB, DATA, [4000, 1])
        inbox.wait(topic="a")
        assert pieces(inbox) == [("a", 1)]
        sender.stop()


@pytest.mark.mosquitto
@pytest.mark.parametrize("patience", [PATIENCE, 30.0], ids=["looks in time", "looks too late"])
def test_it_goes_on_after_the_broker_was_killed_in_the_middle(
    patience: float, mosquitto: MosquittoBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its thread does not look before the connection is there again."""
    monkeypatch.setattr(sender_module, "PATIENCE", patience)
    heard = Inbox()
    link = Link(mosquitto.address, "sender", heard)
    link.start_now(30)
    sender = ChunkSender(link)
    try:
        with frozen(mosquitto):
            sender.send("a", BLOB, DATA, range(30))
            wait_until(sending(link), "a window of chunks")
            os.kill(mosquitto.pid, signal.SIGKILL)
        heard.wait(LinkDown)
        mosquitto.stop()
        with (
            MosquittoBroker(mosquitto.address, tmp_path / "again") as again,
            linked(again.address, "receiver", "a", "b", "end") as (_, inbox),
        ):
            wait_until(lambda: link.connected, "the connection")
            sender.send("b", BLOB, DATA, range(30))
            wait_until(lambda: ("b", 29) in pieces(inbox), "b")
            # What was on its way may come twice; what only waited is asked for again.
            assert sum(topic == "a" for topic, _ in set(pieces(inbox))) <= WINDOW_BROADCAST
    finally:
        sender.stop()
        link.stop()
    assert isinstance(heard.all[0], LinkUp)
