"""Several exchanges open at the same time: each gets its own replies, receipts and cancels."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.coordinator.exchanges.awaited_replies import PendingExchange, PendingExchanges
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.events.base.coordinator_states import REMOVED
from edgefed.transport.inbox import Incoming
from edgefed.wire.blobs import chunk, chunk_count
from edgefed.wire.envelope import decode
from edgefed.wire.message_parts import DeliveredRelay
from edgefed.wire.messages import (
    Birth,
    BlobRef,
    Cancel,
    Chunk,
    Need,
    Progress,
    Receipt,
    Reply,
    Request,
    Task,
)
from edgefed.wire.tensors import digest
from tests.coordinator.dispatch.test_dispatcher import (
    DATA,
    OTHER,
    TOPICS,
    Scene,
    at_work,
    exchange,
    never,
)
from tests.coordinator.dispatch.test_dispatcher import reply as reply_of
from tests.transport.listening import PATIENCE, wait_until

pytestmark = pytest.mark.mosquitto

NEW = "c" * 16
MORE = DATA[::-1]


@pytest.fixture
def scene(mosquitto: MosquittoBroker, tmp_path: Path) -> Iterator[Scene]:
    with at_work(mosquitto, tmp_path) as made:
        yield made


def asks(index: int, *devices: str) -> OpenExchange:
    """An exchange that asks only these devices."""
    opened = exchange(index)
    tasks = tuple(task for task in opened.tasks if task.device in devices)
    return replace(opened, tasks=tasks, wanted=2, quorum=1)


def reply(device: str, index: int, data: bytes, *, inline: bool = True) -> Reply:
    made = reply_of(device, len(data), digest(data), exchange=f"r-1-{index}")
    inside = {digest(data): data} if inline else {}
    return made.model_copy(update={"index": index, "inline": inside})


def answers(scene: Scene, device: str, index: int) -> None:
    scene.send(TOPICS.reply(device), reply(device, index, f"{device} {index}".encode()))


def upload(scene: Scene, device: str, data: bytes) -> None:
    for number in range(chunk_count(len(data))):
        part = Chunk(digest=digest(data), index=number, data=chunk(data, number))
        scene.send(TOPICS.up_chunk(device), part)


def asked_for_blob(scene: Scene, device: str) -> None:
    wait_until(lambda: bool(heard(scene, TOPICS.down_need(device))), f"a request to {device}")


def settle(scene: Scene) -> None:
    """Wait until the dispatcher has taken all that was sent."""
    before = len(scene.requests)
    scene.send(TOPICS.request("local/0"), Request(nonce=OTHER, action="mark"))
    wait_until(lambda: len(scene.requests) > before, "the request")


def hear_all(scene: Scene) -> None:
    """Wait until the devices have heard all that the dispatcher has published."""
    before = len(receipts(scene, "two"))
    scene.dispatcher.send_receipt("two", "mark", "late", "")
    wait_until(lambda: len(receipts(scene, "two")) > before, "the mark")


def tasks(scene: Scene, device: str) -> list[str]:
    told = (decode(each.payload, Task) for each in heard(scene, TOPICS.task(device)))
    return [each.exchange for each in told]


def cancels(scene: Scene) -> list[tuple[str, str]]:
    return [
        (device, decode(each.payload, Cancel).exchange)
        for device in ("one", "two")
        for each in heard(scene, TOPICS.cancel(device))
    ]


def receipts(scene: Scene, device: str) -> list[tuple[str, str]]:
    told = (decode(each.payload, Receipt) for each in heard(scene, TOPICS.receipt(device)))
    return [(each.exchange, each.outcome) for each in told]


def heard(scene: Scene, topic: str) -> list[Incoming]:
    return [each for each in scene.heard.messages() if each.topic == topic]


def pending(scene: Scene, opened: OpenExchange) -> PendingExchange:
    found = scene.dispatcher.exchanges.get(opened.exchange)
    assert found is not None
    return found


def names(delivered: list[Delivered]) -> list[tuple[str, str]]:
    return [(each.reply.exchange, each.reply.device) for each in delivered]


def test_replies_out_of_order_reach_their_own_exchange(scene: Scene) -> None:
    first, second = asks(0, "one"), asks(1, "two")
    scene.fleet.put(first)
    scene.fleet.put(second)
    wait_until(lambda: tasks(scene, "one") == ["r-1-0"], "the first task")
    wait_until(lambda: tasks(scene, "two") == ["r-1-1"], "the second task")
    answers(scene, "two", 1)
    answers(scene, "one", 0)
    settle(scene)
    (later,) = scene.fleet.replies(second, never)
    assert names([later]) == [("r-1-1", "two")]
    assert later.read(digest(b"two 1")) == b"two 1"
    scene.fleet.verdict(later.reply, "accepted", "")
    assert pending(scene, second).quorum_at is not None
    assert pending(scene, first).quorum_at is None, "it counts for its own exchange only"
    scene.fleet.drop(second)
    (earlier,) = scene.fleet.replies(first, never)
    assert names([earlier]) == [("r-1-0", "one")]
    scene.fleet.drop(first)
    assert scene.dispatcher.exchanges.all() == []
    assert cancels(scene) == []


def test_a_device_is_given_its_tasks_one_after_another(scene: Scene) -> None:
    first, second = asks(0, "one", "two"), asks(1, "one")
    scene.fleet.put(first)
    scene.fleet.put(second)
    birth = Birth(session=NEW, status="online", samples=5)
    scene.send(TOPICS.birth("one"), birth, retain=True)
    wait_until(lambda: len(tasks(scene, "one")) == 2, "the task again")
    assert tasks(scene, "one") == ["r-1-0", "r-1-0"], "a new life is given the same one"
    answers(scene, "one", 0)
    settle(scene)
    hear_all(scene)
    assert tasks(scene, "one")[2:] == ["r-1-1"], "it is given its next task at once"
    answers(scene, "one", 1)
    answers(scene, "two", 0)
    assert names(list(scene.fleet.replies(second, never))) == [("r-1-1", "one")]
    assert names(list(scene.fleet.replies(first, never))) == [("r-1-0", "one"), ("r-1-0", "two")]
    for opened in (first, second):
        scene.fleet.drop(opened)
    assert tasks(scene, "two") == ["r-1-0"]


def test_dropping_one_cancels_its_devices_only(scene: Scene) -> None:
    first, second = asks(0, "one"), asks(1, "one", "two")
    scene.fleet.put(first)
    scene.fleet.put(second)
    wait_until(lambda: tasks(scene, "two") == ["r-1-1"], "the task")
    scene.fleet.drop(first)
    hear_all(scene)
    assert tasks(scene, "one") == ["r-1-0", "r-1-1"], "it is given its next task at once"
    assert cancels(scene) == [("one", "r-1-0")]
    answers(scene, "one", 0)
    for device in ("one", "two"):
        answers(scene, device, 1)
    found = names(list(scene.fleet.replies(second, never)))
    assert found == [("r-1-1", "one"), ("r-1-1", "two")]
    late = [("r-1-0", "late")]
    wait_until(lambda: receipts(scene, "one") == late, "word that nobody waits for the first")
    scene.fleet.drop(first)  # nothing is left of it to drop
    scene.fleet.drop(second)
    settle(scene)
    assert cancels(scene) == [("one", "r-1-0")]


def test_what_nobody_read_is_late_unless_it_is_put_again(scene: Scene) -> None:
    first, second = asks(0, "one"), asks(1, "two")
    for opened, device in ((first, "one"), (second, "two")):
        scene.fleet.put(opened)
        answers(scene, device, opened.index)
    settle(scene)
    scene.fleet.drop(first, put_again=True)
    scene.fleet.drop(second)
    wait_until(lambda: receipts(scene, "two") == [("r-1-1", "late")], "the receipt")
    assert receipts(scene, "one") == []
    scene.fleet.put(first)
    wait_until(lambda: tasks(scene, "one") == ["r-1-0", "r-1-0"], "the task again")
    answers(scene, "one", 0)
    settle(scene)
    scene.dispatcher.release_space()
    (delivered,) = scene.fleet.replies(first, never)
    assert delivered.read(digest(b"one 0")) == b"one 0", "it is open again"
    scene.fleet.drop(first)


def test_an_iterator_that_is_closed_loses_nothing(scene: Scene) -> None:
    opened = asks(0, "one", "two")
    scene.fleet.put(opened)
    answers(scene, "one", 0)
    assert next(scene.fleet.replies(opened, never)).reply.device == "one"
    answers(scene, "two", 0)
    assert names(list(scene.fleet.replies(opened, never))) == [("r-1-0", "two")]
    scene.fleet.drop(opened)
    assert cancels(scene) == []
    with pytest.raises(KeyError):
        next(scene.fleet.replies(opened, never))


def test_who_reads_replies_stops_when_the_exchange_is_dropped(scene: Scene) -> None:
    first, second = asks(0, "one"), asks(1, "two")
    scene.fleet.put(first)
    scene.fleet.put(second)
    found: list[Delivered] = []
    reader = threading.Thread(target=lambda: found.extend(scene.fleet.replies(first, never)))
    reader.start()
    answers(scene, "two", 1)
    assert names(list(scene.fleet.replies(second, never))) == [("r-1-1", "two")]
    assert reader.is_alive()
    scene.fleet.drop(first)
    reader.join(PATIENCE / 2)  # its deadline is PATIENCE
    assert not reader.is_alive()
    assert found == []
    scene.fleet.drop(second)


def test_dropping_one_leaves_the_uploads_of_the_other(scene: Scene) -> None:
    first, second = asks(0, "one"), asks(1, "two")
    scene.fleet.put(first)
    scene.fleet.put(second)
    for device, index in (("one", 0), ("two", 1)):
        scene.send(TOPICS.reply(device), reply(device, index, DATA, inline=False))
    asked_for_blob(scene, "one")
    settle(scene)
    assert scene.told(TOPICS.down_need("two"), Need) == [], "the same blob is asked for once"
    scene.fleet.drop(first)
    asked_for_blob(scene, "two")
    upload(scene, "two", DATA)
    (delivered,) = scene.fleet.replies(second, never)
    assert delivered.read(digest(DATA)) == DATA
    assert delivered.size > len(DATA)
    scene.fleet.drop(second)


def test_what_is_over_is_forgotten_and_what_another_needs_is_kept(scene: Scene) -> None:
    first, second = asks(0, "one", "two"), asks(1, "one")
    scene.fleet.put(first)
    scene.fleet.put(second)
    for device, data in (("one", DATA), ("two", MORE)):
        scene.send(TOPICS.reply(device), reply(device, 0, data, inline=False))
        asked_for_blob(scene, device)
        upload(scene, device, data)
    assert len(list(scene.fleet.replies(first, never))) == 2
    scene.send(TOPICS.reply("one"), reply("one", 1, DATA, inline=False))
    (kept,) = scene.fleet.replies(second, never)
    scene.fleet.drop(first)
    scene.fleet.closed("r-1", 0)
    assert not scene.cache.has(digest(MORE))
    assert kept.read(digest(DATA)) == DATA
    scene.dispatcher.release_space()
    assert scene.cache.has(digest(DATA)), "an open exchange needs it"
    scene.fleet.drop(second)
    scene.fleet.closed("r-1", 0)
    assert scene.cache.has(digest(DATA)), "it is not merged yet"
    scene.fleet.closed("r-1", 1)
    assert not scene.cache.has(digest(DATA))


def test_replies_to_shared_exchanges_are_read_together(scene: Scene) -> None:
    """Each is dropped and forgotten by itself; the reply to another one stays in the queue."""
    first, second, third = asks(0, "one"), asks(1, "two"), asks(2, "one")
    for opened in (first, second, third):
        scene.fleet.put(opened, shared=True)
    for device, index in (("two", 1), ("one", 0)):
        answers(scene, device, index)
        settle(scene)
    until = time.monotonic() + PATIENCE
    read = scene.fleet.next_reply(until, never)
    while read is None:  # presences of devices
        read = scene.fleet.next_reply(until, never)
    assert names([read]) == [("r-1-1", "two")]
    scene.fleet.drop(second)
    scene.fleet.forget([second.exchange])
    assert not scene.cache.has(digest(b"two 1"))
    assert scene.cache.has(digest(b"one 0"))
    read = scene.fleet.next_reply(until, never)
    assert read is not None
    assert names([read]) == [("r-1-0", "one")]
    assert scene.fleet.next_reply(time.monotonic(), never) is None
    assert scene.fleet.overdue() == {}
    scene.fleet.postpone(-third.deadline - 1)
    assert scene.fleet.overdue() == {third.exchange: "late"}
    scene.fleet.postpone(third.deadline + 1)
    assert scene.fleet.overdue() == {}
    for opened in (first, third):
        scene.fleet.drop(opened)


def test_a_lost_device_is_noted_in_every_exchange(scene: Scene) -> None:
    both = [replace(asks(index, "one", "two"), lost_grace=0.1) for index in range(2)]
    for opened in both:
        scene.fleet.put(opened)
        answers(scene, "one", opened.index)
    settle(scene)
    scene.send(TOPICS.birth("two"), Birth(session=OTHER, status="lost"), retain=True)
    for opened in both:
        found = []
        for delivered in scene.fleet.replies(opened, never):
            scene.fleet.verdict(delivered.reply, "accepted", "")
            found.append(delivered)
        assert names(found) == [(opened.exchange, "one")]
        scene.fleet.drop(opened)
    assert sum("continues without two" in note for note in scene.notes) == 2


def test_a_device_that_is_no_member_any_more_is_not_waited_for(scene: Scene) -> None:
    """Neither for its grace nor until the deadline, as it can never answer."""
    opened = asks(0, "one", "two")
    scene.fleet.put(opened)
    answers(scene, "one", 0)
    settle(scene)
    scene.dispatcher.drop_device("two")
    assert names(list(scene.fleet.replies(opened, never))) == [(opened.exchange, "one")]
    scene.fleet.drop(opened)


def test_a_device_that_its_site_has_removed_is_not_waited_for(scene: Scene) -> None:
    opened = replace(asks(0, "two"), deadline=10.0**6, lost_grace=None)
    scene.fleet.put(opened)
    farewell = Progress(session=OTHER, state="lost", reason=REMOVED)
    scene.send(TOPICS.progress("two"), farewell)
    scene.send(TOPICS.birth("two"), Birth(session=OTHER, status="lost"), retain=True)
    assert list(scene.fleet.replies(opened, never)) == []
    scene.fleet.drop(opened)


def test_who_waits_for_a_device_that_is_withdrawn_goes_on(scene: Scene) -> None:
    opened, read = replace(asks(0, "two"), deadline=10.0**6), list[Delivered]()
    scene.fleet.put(opened)
    reader = threading.Thread(target=lambda: read.extend(scene.fleet.replies(opened, never)))
    reader.start()
    reader.join(0.2)  # time to begin to wait
    scene.fleet.withdraw(opened.exchange, "two")
    reader.join(PATIENCE)
    assert not reader.is_alive() and read == []
    scene.fleet.drop(opened)


def test_a_shared_exchange_ends_with_its_only_device_that_is_no_member_any_more(
    scene: Scene,
) -> None:
    single, both = asks(0, "two"), asks(1, "one", "two")
    for opened in (single, both):
        scene.fleet.put(opened, shared=True)
    read: list[Delivered] = []

    def ended() -> dict[str, str]:
        if (delivered := scene.fleet.next_reply(time.monotonic(), never)) is not None:
            read.append(delivered)
        return {**scene.fleet.overdue()}

    scene.dispatcher.drop_device("two")
    wait_until(lambda: ended() == {single.exchange: "lost"}, "the end of one")
    scene.fleet.drop(single)
    assert ended() == {} and read == []
    answers(scene, "one", 1)
    wait_until(lambda: ended() == {both.exchange: "lost"}, "the end of the other one")
    assert names(read) == [(both.exchange, "one")]
    scene.fleet.drop(both)


def test_a_device_that_is_silent_is_given_its_current_task_again(scene: Scene) -> None:
    """Its other task is not repeated before it was given once."""
    opened = [PendingExchange(asks(index, "one"), 0.0) for index in range(2)]  # both overdue
    for each in opened:
        scene.dispatcher.exchanges.add(each)
    wait_until(lambda: bool(tasks(scene, "one")), "a repetition")
    settle(scene)
    assert set(tasks(scene, "one")) == {"r-1-0"}
    for each in opened:
        scene.dispatcher.close(each)


def test_an_exchange_of_the_life_before_is_put_beside_another(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    """A reply that comes before its exchange is put again is neither late nor lost."""
    first, second = asks(4, "one"), asks(6, "two")
    with at_work(mosquitto, tmp_path) as scene:
        scene.fleet.put(first)
        answers(scene, "two", 6)
        answers(scene, "two", 3)
        wait_until(lambda: bool(receipts(scene, "two")), "a receipt")
        assert receipts(scene, "two") == [("r-1-3", "late")]
        scene.fleet.put(second)
        answers(scene, "two", 5)  # its exchange may be about to be put, too
        settle(scene)
        hear_all(scene)
        assert ("r-1-5", "late") not in receipts(scene, "two")
        answers(scene, "two", 6)
        assert names(list(scene.fleet.replies(second, never))) == [("r-1-6", "two")]
        for opened in (first, second):
            scene.fleet.drop(opened)


def test_an_oversized_reply_is_judged_by_its_own_exchange(scene: Scene) -> None:
    first = asks(0, "one")
    second = replace(asks(1, "two"), max_reply_bytes=2**40)
    scene.fleet.put(first)
    scene.fleet.put(second)
    huge = {"delta": BlobRef(digest="0" * 64, size=2**30)}
    for device, index in (("one", 0), ("two", 1)):
        scene.send(
            TOPICS.reply(device),
            reply(device, index, DATA, inline=False).model_copy(update={"blobs": huge}),
        )
    asked_for_blob(scene, "two")
    assert names(list(scene.fleet.replies(first, never))) == [("r-1-0", "one")]
    assert scene.told(TOPICS.down_need("one"), Need) == []
    for opened in (first, second):
        scene.fleet.drop(opened)


def test_a_gateway_reaches_the_blobs_of_its_own_devices_tasks() -> None:
    opened = exchange(0)
    one, other = (task.device for task in opened.tasks[:2])
    shared, private = "1" * 64, "2" * 64
    relay = DeliveredRelay(exchange="r-1-9", sender=one, digest=private, size=1)
    tasks = (
        opened.tasks[0].model_copy(update={"blobs": {"weights": BlobRef(digest=shared, size=1)}}),
        opened.tasks[1].model_copy(update={"blobs": {}, "relays": (relay,)}),
    )
    exchanges = PendingExchanges()
    exchanges.add(PendingExchange(replace(opened, tasks=tasks), 0.0))
    assert exchanges.access_of_any((other, one), shared) == "shared"
    assert exchanges.access_of_any((other,), shared) == "none"
    assert exchanges.access_of_any((), shared) == "none"
    assert exchanges.access_of_any((one, other), private) == "private"
    assert exchanges.access_of_any((one,), private) == "none"
