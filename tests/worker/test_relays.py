"""Blobs between devices, as a device does its part: what it may send, and what it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView
from edgefed.simulator.serialization import outcome_bytes, read_outcome
from edgefed.wire.envelope import decode, encode
from edgefed.wire.limits import INLINE_BYTES, MAX_INLINE, MAX_RELAYS
from edgefed.wire.message_parts import DeliveredRelay, SentRelay
from edgefed.wire.messages import Reply
from edgefed.wire.tensors import digest
from edgefed.worker.outcomes import Outcome, make_reply
from tests.support.relaying import Relaying, bytes_for, installed
from tests.worker.tasks import read, task, work, worker

OTHERS = ("device-01", "device-02")
SESSION = "0123456789abcdef"


@pytest.fixture(autouse=True)
def _installed(tmp_path: Any, monkeypatch: Any) -> Iterator[None]:
    with installed(tmp_path / "site", monkeypatch):
        yield


def passing(**changes: Any) -> Any:
    values = {"receivers": OTHERS, "max_relay_bytes": 50, "blobs": {}, "question": "pass"}
    return task(algorithm="relaying", **{**values, **changes})


def test_what_is_sent_is_named_by_receiver_and_travels_with_the_reply() -> None:
    given = passing(max_relay_bytes=INLINE_BYTES - 9)
    outcome = work(given)
    sent = {to: bytes_for(given.seed, to, INLINE_BYTES - 9) for to in OTHERS}
    assert outcome.relays == sent
    assert read_outcome(outcome_bytes(outcome)) == outcome
    reply, beside = make_reply(given, outcome, SESSION)
    assert reply.relays == {
        to: SentRelay(digest=digest(data), size=len(data)) for to, data in sent.items()
    }
    first, second = (digest(data) for data in sent.values())
    assert (set(reply.inline), set(beside)) == ({first}, {second})
    assert decode(encode(reply), Reply) == reply


def test_equal_bytes_travel_once_and_the_message_holds_no_more_than_it_may() -> None:
    many = tuple(f"device-{n:03d}" for n in range(MAX_RELAYS))
    relays = {to: b"same" if n < 9 else b"%d" % n for n, to in enumerate(many)}
    reply, beside = make_reply(task(), Outcome("ok", samples=1, relays=relays), SESSION)
    assert len(reply.relays) == MAX_RELAYS
    assert len(reply.inline) == MAX_INLINE
    assert len({*reply.inline, *beside}) == MAX_RELAYS - 8
    assert decode(encode(reply), Reply) == reply


@pytest.mark.parametrize(
    ("relays", "reason"),
    [
        ({"device-00": b"x"}, "the task does not name device-00 as a receiver"),
        ({"device-09": b"x"}, "the task does not name device-09 as a receiver"),
        ({"device-01": b"x" * 51}, "51 bytes for device-01; it may be 1 to 50"),
        ({"device-01": b""}, "0 bytes for device-01; it may be 1 to 50"),
    ],
    ids=["itself", "unknown", "too large", "nothing"],
)
def test_a_device_sends_only_what_its_task_allows(
    relays: Mapping[str, bytes], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(self: Relaying, task: DeviceTask, device: DeviceView) -> Answer:
        return Answer(task.device, len(device.train), {}, relays=relays)

    monkeypatch.setattr(Relaying, "prepare", wrong)
    outcome = work(passing())
    assert (outcome.status, outcome.relays) == ("failed", {})
    assert reason in outcome.reason


def test_what_came_is_given_by_sender_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = {digest(data): data for data in (b"one", b"two", b"three")}
    named = [("device-01", b"two"), ("device-01", b"one"), ("device-02", b"three")]
    relays = tuple(
        DeliveredRelay(exchange="r-0", sender=sender, digest=digest(data), size=len(data))
        for sender, data in named
    )
    seen: list[DeviceTask] = []

    def look(self: Relaying, task: DeviceTask, device: DeviceView) -> Answer:
        seen.append(task)
        return Answer(task.device, 1, {})

    monkeypatch.setattr(Relaying, "prepare", look)
    given = passing(relays=relays)
    outcome = worker().work(given, read, {}, read_relay=blobs.__getitem__)
    assert outcome.status == "ok", outcome.reason
    (task_seen,) = seen
    assert task_seen.relays == {"device-01": (b"two", b"one"), "device-02": (b"three",)}
    assert (task_seen.receivers, task_seen.max_relay_bytes) == (OTHERS, 50)
    lost = worker().work(given, read, {})
    assert lost.status == "failed"
