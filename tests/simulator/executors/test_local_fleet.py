"""Virtual devices: repeated exchanges give equal replies, and bytes equal a real fleet's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.data.base.types import Shard
from edgefed.simulator.executors import Sequential
from edgefed.simulator.local_fleet import LocalFleet, device_names
from edgefed.wire.blobs import BlobCache
from edgefed.wire.envelope import encode
from edgefed.wire.tensors import pack
from edgefed.worker.trainer_cache import TrainerCache
from tests.run_fixture import Ticking, shards
from tests.worker.tasks import task, weights

PARTS = shards((9, 5, 0), tested=4)


class Bus:
    """Everything that two lives of a coordinator share with the devices."""

    def __init__(self, folder: Path, parts: tuple[Shard, ...] = PARTS) -> None:
        self.cache = BlobCache(folder / "blobs", 1 << 20)
        self.cache.put(pack(weights()))
        self.events: list[tuple[str, dict[str, object]]] = []
        hands = Sequential(parts, TrainerCache("cpu"))
        self.fleet = LocalFleet(parts, self.cache, Ticking(), self.hear, hands)

    def hear(self, kind: str, **fields: object) -> None:
        self.events.append((kind, fields))

    def ask(self, index: int, question: str = "fit", codec: str = "int8") -> list[Delivered]:
        return list(self.pending(index, question, codec))

    def pending(
        self, index: int, question: str = "fit", codec: str = "int8"
    ) -> Iterator[Delivered]:
        return self.fleet.ask(exchange(index, question, codec), lambda: False)


def exchange(index: int, question: str = "fit", codec: str = "int8") -> OpenExchange:
    name = f"r-0001-0000-{index}"
    tasks = tuple(
        task(
            exchange=name,
            index=index,
            question=question,
            device=device,
            codec=codec,
            error_feedback=True,
            seed=100 * index + place,
        )
        for place, device in enumerate(device_names(2))
    )
    return OpenExchange(name, index, question, 1, tasks, 2, 1, 60.0)


def sent(replies: list[Delivered]) -> list[bytes]:
    return [each.read(each.reply.blobs["delta"].digest) for each in replies]


@pytest.mark.parametrize(
    ("count", "first", "last"),
    [
        (1, "device-00", "device-00"),
        (100, "device-00", "device-99"),
        (101, "device-000", "device-100"),
    ],
)
def test_names_sort_as_numbers_do(count: int, first: str, last: str) -> None:
    names = device_names(count)
    assert (len(names), names[0], names[-1]) == (count, first, last)
    assert list(names) == sorted(names)


def test_the_roster_is_what_devices_would_announce(tmp_path: Path) -> None:
    bus = Bus(tmp_path)
    assert [(m.device, m.samples, m.shape, m.classes) for m in bus.fleet.roster()] == [
        ("device-00", 9, (8,), 3),
        ("device-01", 5, (8,), 3),
        ("device-02", 0, (8,), 3),
    ]
    assert bus.fleet.wait_for(99, 1e9, lambda: False) == bus.fleet.roster()
    ((kind, told),) = bus.events
    assert (kind, told["devices"], told["samples"]) == ("roster", list(device_names(3)), [9, 5, 0])
    labels = told["labels"]
    assert isinstance(labels, list)
    assert [sum(counts) for counts in labels] == [9, 5, 0]


def test_ten_thousand_devices_are_announced_in_a_few_events(tmp_path: Path) -> None:
    bus = Bus(tmp_path, PARTS[:1] * 10_000)
    assert {kind for kind, _ in bus.events} == {"roster"}
    assert len(bus.events) <= 10
    names = [name for _, told in bus.events for name in cast(list[str], told["devices"])]
    assert names == list(device_names(10_000))


def test_private_state_goes_on_from_exchange_to_exchange(tmp_path: Path) -> None:
    bus, fresh = Bus(tmp_path / "a"), Bus(tmp_path / "b")
    bus.ask(0)
    assert sent(bus.ask(1)) != sent(fresh.ask(1)), "it has something to make up for"


def test_asked_again_a_device_answers_alike(tmp_path: Path) -> None:
    bus = Bus(tmp_path)
    bus.ask(0)
    first = sent(bus.ask(1))
    assert sent(bus.ask(1)) == first
    assert sent(bus.ask(1)) == first
    straight = Bus(tmp_path / "straight")
    straight.ask(0)
    straight.ask(1)
    assert sent(bus.ask(2)) == sent(straight.ask(2)), "and goes on as if it had been asked once"


def test_a_test_in_between_does_not_touch_private_state(tmp_path: Path) -> None:
    bus, straight = Bus(tmp_path / "a"), Bus(tmp_path / "b")
    for each in (bus, straight):
        each.ask(0)
    bus.ask(1, "evaluate")
    assert sent(bus.ask(2)) == sent(straight.ask(2))


def test_bytes_are_those_of_the_messages_and_of_the_blobs_that_a_device_lacks(
    tmp_path: Path,
) -> None:
    bus = Bus(tmp_path)
    tasks = sum(len(encode(each)) for each in exchange(0).tasks)
    replies = bus.ask(0)
    whole = len(pack(weights()))
    assert bus.fleet.traffic() == (
        sum(len(encode(each.reply)) for each in replies),
        tasks + 2 * whole,
    )
    assert [each.size for each in replies] == [len(encode(each.reply)) for each in replies]
    before = bus.fleet.traffic()[1]
    bus.ask(1)
    second = sum(len(encode(each)) for each in exchange(1).tasks)
    assert bus.fleet.traffic()[1] - before == second, "the blob is held by now"


def test_stop_ends_the_asking(tmp_path: Path) -> None:
    bus = Bus(tmp_path)
    heard: list[bool] = []

    def stop() -> bool:
        heard.append(True)
        return False

    assert len(list(bus.fleet.ask(exchange(0), stop))) == 2
    assert len(heard) > 2, "asked before every device and every step"
    assert list(bus.fleet.ask(exchange(1), lambda: True)) == []


def test_a_blob_that_is_gone_is_a_failed_reply(tmp_path: Path) -> None:
    bus = Bus(tmp_path)
    bus.cache.clear()
    assert [each.reply.status for each in bus.ask(0)] == ["failed", "failed"]


def test_devices_tell_what_they_do(tmp_path: Path) -> None:
    bus = Bus(tmp_path)
    bus.events.clear()
    bus.ask(0)
    for device in device_names(2):
        told = [fields["state"] for _, fields in bus.events if fields["device"] == device]
        assert told == ["train", "done"]


def test_each_reply_is_made_when_it_is_taken(tmp_path: Path) -> None:
    bus = Bus(tmp_path)
    bus.events.clear()
    pending = bus.pending(0)
    next(pending)
    assert [fields["device"] for _, fields in bus.events if fields["state"] == "done"] == [
        "device-00"
    ]


def test_two_open_exchanges_are_read_in_turns_and_nothing_is_done_twice(tmp_path: Path) -> None:
    bus, straight = Bus(tmp_path / "bus"), Bus(tmp_path / "straight")
    first, second = exchange(0), exchange(1)
    bus.fleet.put(first)
    bus.fleet.put(second)
    begun = next(bus.fleet.replies(first, lambda: False))
    assert begun.reply.exchange == first.exchange
    rest = list(bus.fleet.replies(first, lambda: False))
    assert [each.reply.device for each in (begun, *rest)] == list(device_names(2))
    assert sent([begun, *rest]) == sent(straight.ask(0))
    half = next(bus.fleet.replies(second, lambda: False))
    bus.fleet.drop(first)
    others = list(bus.fleet.replies(second, lambda: False))
    assert sent([half, *others]) == sent(straight.ask(1))
    bus.fleet.drop(second)
    bus.fleet.drop(second)
    with pytest.raises(KeyError):
        next(bus.fleet.replies(second, lambda: False))


def test_dropping_an_exchange_ends_its_replies(tmp_path: Path) -> None:
    bus, opened = Bus(tmp_path), exchange(0)
    bus.fleet.put(opened)
    replies = bus.fleet.replies(opened, lambda: False)
    next(replies)
    bus.fleet.drop(opened)
    assert list(replies) == []
