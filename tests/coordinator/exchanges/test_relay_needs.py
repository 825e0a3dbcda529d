"""Who is sent a blob between devices, over a real broker: its receiver, and nobody else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.algorithms.interface.exchange import Relay
from edgefed.coordinator.exchanges.awaited_replies import PendingExchange
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.transport.inbox import Incoming
from edgefed.wire.blobs import chunk_count
from edgefed.wire.envelope import decode
from edgefed.wire.limits import MAX_SEAL_BYTES
from edgefed.wire.message_parts import DeliveredRelay, Patch, SentRelay
from edgefed.wire.messages import BlobRef, Chunk, Need, Reply, Request
from edgefed.wire.tensors import digest
from tests.coordinator.dispatch.test_dispatcher import (
    DATA,
    DEVICES,
    OTHER,
    TOPICS,
    Scene,
    at_work,
    exchange,
    reply,
)
from tests.transport.listening import PATIENCE, Inbox, linked, wait_until

pytestmark = pytest.mark.mosquitto

NAME = digest(DATA)
WHOLE = Need(digest=NAME, first=True)
CHUNKS = Need(digest=NAME, first=False, chunks=tuple(range(chunk_count(len(DATA)))))


@pytest.fixture
def scene(mosquitto: MosquittoBroker, tmp_path: Path) -> Iterator[Scene]:
    with at_work(mosquitto, tmp_path) as made:
        yield made


@pytest.fixture
def everything(mosquitto: MosquittoBroker) -> Iterator[Inbox]:
    """All that the broker hands to anybody."""
    with linked(mosquitto.address, "everything", f"{TOPICS.root}/#") as (_, inbox):
        yield inbox


def delivering(*receivers: str, index: int = 0) -> OpenExchange:
    """An exchange that delivers ``DATA`` to some devices."""
    plain = exchange(index)
    sent = DeliveredRelay(exchange="r-1-x", sender="three", digest=NAME, size=len(DATA))
    tasks = tuple(
        task.model_copy(update={"relays": (sent,) if task.device in receivers else ()})
        for task in plain.tasks
    )
    return replace(plain, tasks=tasks)


def hold(scene: Scene, *receivers: str) -> None:
    relays = [Relay("r-1-x", "three", device, NAME, len(DATA)) for device in receivers]
    scene.relays.keep(relays, lambda name: DATA)


def settle(scene: Scene) -> None:
    """Wait until all that was sent so far is handled."""
    scene.requests.clear()
    scene.send(TOPICS.request("local/0"), Request(nonce=OTHER, action="mark"))
    wait_until(lambda: scene.requests == ["mark"], "the request")


def chunks(inbox: Inbox) -> list[Incoming]:
    topics = (f"/all/c/{NAME}", "/c")
    arrived = [each for each in inbox.messages() if each.topic.endswith(topics)]
    return [each for each in arrived if decode(each.payload, Chunk).digest == NAME]


def on(topic: str, inbox: Inbox) -> int:
    return sum(topic in each.topic for each in chunks(inbox))


def ask_in_vain(scene: Scene, device: str) -> None:
    for need in (WHOLE, CHUNKS):
        scene.send(TOPICS.up_need(device), need)
    settle(scene)
    time.sleep(0.5)  # longer than requests are gathered


def test_only_the_receiver_is_sent_it_and_never_by_broadcast(
    scene: Scene, everything: Inbox
) -> None:
    hold(scene, "one")
    scene.dispatcher.open(PendingExchange(delivering("one"), time.monotonic()))
    ask_in_vain(scene, "two")
    ask_in_vain(scene, "three")  # nobody of that name has joined
    assert chunks(everything) == []
    told = [note for note in scene.notes if "a blob that was sent to another device" in note]
    assert [note.partition(":")[0] for note in told] == ["two"], "once a minute"
    count = chunk_count(len(DATA))
    scene.send(TOPICS.up_need("one"), CHUNKS)
    wait_until(lambda: len(chunks(everything)) == count, "the chunks")
    scene.send(TOPICS.up_need("one"), WHOLE)
    wait_until(lambda: len(chunks(everything)) == 2 * count, "the chunks again")
    assert on("/down/one/c", everything) == len(chunks(everything))


def test_two_receivers_of_equal_bytes_are_sent_them_one_by_one(
    scene: Scene, everything: Inbox
) -> None:
    hold(scene, *DEVICES)
    scene.dispatcher.open(PendingExchange(delivering(*DEVICES), time.monotonic()))
    for device in DEVICES:
        scene.send(TOPICS.up_need(device), WHOLE)
    count = chunk_count(len(DATA))
    wait_until(lambda: len(chunks(everything)) >= 2 * count, "both transfers")
    assert [on(f"/down/{device}/c", everything) for device in DEVICES] == [count, count]
    assert on("/all/c/", everything) == 0


def test_before_and_after_its_exchange_even_the_receiver_is_sent_nothing(
    scene: Scene, everything: Inbox
) -> None:
    hold(scene, "one")
    ask_in_vain(scene, "one")
    pending = PendingExchange(delivering("one"), time.monotonic())
    scene.dispatcher.open(pending)
    scene.dispatcher.close(pending)
    ask_in_vain(scene, "one")
    assert chunks(everything) == []
    assert not any("another device" in note for note in scene.notes)


def test_what_a_device_uploads_is_sent_to_nobody(scene: Scene, everything: Inbox) -> None:
    pending = PendingExchange(exchange(), time.monotonic())
    scene.dispatcher.open(pending)
    scene.send(TOPICS.reply("one"), reply("one", len(DATA), NAME))
    wait_until(lambda: bool(scene.told(TOPICS.down_need("one"), Need)), "a request")
    scene.upload("one", NAME)
    assert pending.arrivals.get(timeout=PATIENCE) is not None
    count = chunk_count(len(DATA))
    wait_until(lambda: len(chunks(everything)) == count, "its own chunks")
    ask_in_vain(scene, "two")
    assert len(chunks(everything)) == count


@pytest.mark.parametrize("patched", [False, True])
def test_a_device_cannot_hide_the_coordinators_own_blob(
    scene: Scene, everything: Inbox, patched: bool
) -> None:
    """It sends the very bytes of the weights, or of a patch, to another one."""
    hold(scene, "one")
    patches = (Patch(base=None, blob=NAME, size=len(DATA)),) if patched else ()
    ref = BlobRef(digest="1" * 64 if patched else NAME, size=len(DATA), patches=patches)
    plain = exchange()
    tasks = tuple(task.model_copy(update={"blobs": {"weights": ref}}) for task in plain.tasks)
    scene.dispatcher.open(PendingExchange(replace(plain, tasks=tasks), time.monotonic()))
    for device in DEVICES:
        scene.send(TOPICS.up_need(device), WHOLE)
    wait_until(lambda: on("/all/c/", everything) == chunk_count(len(DATA)), "the broadcast")


def sending(receiver: str, size: int, *, allowed: int = len(DATA)) -> tuple[OpenExchange, Reply]:
    plain = exchange()
    changes = {"receivers": ("two",), "max_relay_bytes": allowed}
    tasks = tuple(task.model_copy(update=changes) for task in plain.tasks)
    sent = {receiver: SentRelay(digest=NAME, size=size)}
    told = reply("one", 1, "0" * 64).model_copy(update={"blobs": {}, "relays": sent})
    return replace(plain, tasks=tasks), told


@pytest.mark.parametrize(
    ("receiver", "allowed"),
    [("one", len(DATA)), ("three", len(DATA)), ("two", len(DATA) - 1 - MAX_SEAL_BYTES)],
)
def test_what_is_not_forwarded_is_not_even_pulled(
    scene: Scene, receiver: str, allowed: int
) -> None:
    asked, told = sending(receiver, len(DATA), allowed=allowed)
    pending = PendingExchange(asked, time.monotonic())
    scene.dispatcher.open(pending)
    scene.send(TOPICS.reply("one"), told)
    assert pending.arrivals.get(timeout=PATIENCE) is not None
    assert scene.told(TOPICS.down_need("one"), Need) == []


def test_it_is_pulled_like_any_other_and_deleted_with_its_marker(
    scene: Scene, tmp_path: Path
) -> None:
    asked, told = sending("two", len(DATA))
    pending = PendingExchange(asked, time.monotonic())
    scene.dispatcher.open(pending)
    scene.send(TOPICS.reply("one"), told)
    wait_until(lambda: bool(scene.told(TOPICS.down_need("one"), Need)), "a request")
    markers = tmp_path / "relays"
    assert [path.name for path in markers.iterdir()] == [NAME]
    scene.upload("one", NAME)
    delivered = pending.arrivals.get(timeout=PATIENCE)
    assert delivered is not None
    assert delivered.read(NAME) == DATA
    scene.dispatcher.close(pending)
    scene.dispatcher.forget("r-1", 0)  # nobody merged it
    assert not scene.cache.has(NAME)
    assert list(markers.iterdir()) == []
