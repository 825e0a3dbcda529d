"""When an exchange closes: at its deadline, or after the grace of devices that are lost."""

from __future__ import annotations

import pytest

from edgefed.coordinator.exchanges.awaited_replies import PendingExchange
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.wire.message_parts import WorkCost
from edgefed.wire.messages import BlobRef, DeviceState, Progress
from tests.coordinator.journal.test_journal import reply
from tests.worker.tasks import task

START, DEADLINE, GRACE = 1000.0, 300.0, 30.0
DEVICES = ("a", "b", "c", "d")
DELTA = BlobRef(digest="d" * 64, size=5)


def asked(*, quorum: int = 2, grace: float | None = GRACE) -> PendingExchange:
    """Return an exchange that is put to four devices."""
    tasks = tuple(task(exchange="r-1-0", device=device) for device in DEVICES)
    exchange = OpenExchange("r-1-0", 0, "fit", 1, tasks, 4, quorum, DEADLINE, lost_grace=grace)
    return PendingExchange(exchange, START)


def arrives(pending: PendingExchange, *devices: str) -> None:
    for device in devices:
        pending.deliver(Delivered(reply(device, 3), dict[str, bytes]().__getitem__, 1.0, 10))


def merged(pending: PendingExchange, *devices: str, at: float) -> None:
    arrives(pending, *devices)
    for device in devices:
        pending.arrivals.get()
        pending.accept(device, at)


def reports(pending: PendingExchange, state: DeviceState, at: float, fraction: float = 0.0) -> None:
    progress = Progress(session="0" * 16, state=state, fraction=fraction, exchange="r-1-0")
    pending.note_progress("a", progress, at)


def test_training_lasts_from_its_first_report_to_the_upload() -> None:
    pending = asked()
    for state, at in (("download", 1.0), ("train", 4.0), ("upload", 9.0), ("upload", 10.0)):
        reports(pending, state, at)  # type: ignore[arg-type]
    pending.note_upload("a", 11.0)
    assert pending.measured(reply("a", 3), 12.0) == (5.0, 3.0)
    assert pending.measured(reply("b", 3), 12.0) == (None, None)


def test_a_restarted_agent_is_measured_anew() -> None:
    pending = asked()
    reports(pending, "train", 2.0)
    reports(pending, "train", 3.0, 0.5)
    reports(pending, "upload", 4.0)
    reports(pending, "train", 20.0)
    assert pending.measured(reply("a", 3), 21.0) == (None, None)
    reports(pending, "train", 22.0, 0.5)
    pending.note_upload("a", 26.0)
    reports(pending, "upload", 27.0)
    assert pending.measured(reply("a", 3), 28.0) == (6.0, 2.0)


def test_training_whose_begin_was_not_seen_is_unknown_or_begins_with_the_next_report() -> None:
    pending = asked()
    reports(pending, "upload", 4.0)
    reports(pending, "train", 5.0, 0.9)  # late
    assert pending.measured(reply("a", 3), 6.0) == (None, 2.0)
    other = asked()
    reports(other, "train", 5.0, 0.2)
    reports(other, "upload", 7.0)
    assert other.measured(reply("a", 3), 8.0) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("inline", "worked", "upload"),
    [(True, 0.0, 2.5), (True, 4.0, 1.0), (False, 4.0, 0.5)],
    ids=["one message", "after a wait", "chunks"],
)
def test_training_lasts_as_long_as_the_device_measured(
    inline: bool, worked: float, upload: float
) -> None:
    """A reply of one message arrives with the report before it, and was sent well before that."""
    pending = asked()
    reports(pending, "train", 5.0)
    reports(pending, "upload", 9.5)
    cost = WorkCost(training_seconds=2.5, work_seconds=worked)
    made = reply("a", 3).model_copy(update={"cost": cost, "blobs": {"delta": DELTA}})
    made = made.model_copy(update={"inline": {DELTA.digest: b"delta"} if inline else {}})
    assert pending.measured(made, 10.0) == (2.5, upload)
    assert asked().measured(made, 10.0) == (None, None)


def test_the_grace_counts_from_the_last_loss_when_the_quorum_was_before() -> None:
    pending = asked()
    merged(pending, "a", "b", at=START + 5)
    pending.note_lost({"c": START + 8, "d": START + 20})
    assert pending.closes_at() == START + 20 + GRACE
    assert pending.is_open(START + 20 + GRACE - 0.1)
    assert not pending.is_open(START + 20 + GRACE)


def test_a_device_that_is_there_is_waited_for_until_the_deadline() -> None:
    pending = asked()
    merged(pending, "a", "b", at=START + 5)
    pending.note_lost({"c": START + 8})
    assert pending.closes_at() == START + DEADLINE
    merged(pending, "d", at=START + 60)
    assert pending.closes_at() == START + 8 + GRACE, "only the lost one is left"


def test_who_is_back_is_waited_for_as_before() -> None:
    pending = asked()
    merged(pending, "a", "b", "d", at=START + 5)
    pending.note_lost({"c": START + 8})
    pending.note_lost({})
    assert pending.closes_at() == START + DEADLINE


@pytest.mark.parametrize("quorum", [0, 1])
def test_a_quorum_of_none_is_met_from_the_beginning(quorum: int) -> None:
    pending = asked(quorum=quorum)
    pending.note_lost(dict.fromkeys(DEVICES, START))
    assert pending.closes_at() == START + (GRACE if quorum == 0 else DEADLINE)


def test_what_arrived_and_is_not_merged_is_neither_lost_nor_over() -> None:
    pending = asked(quorum=1)
    merged(pending, "a", "d", at=START + 1)
    pending.note_lost({"b": START + 2, "c": START + 2})
    arrives(pending, "b")
    assert pending.lost_devices() == {"c"}
    assert pending.is_open(START + 2 * GRACE), "a reply is there to be merged"
    pending.arrivals.get()
    assert not pending.is_open(START + 2 * GRACE)


def test_it_is_over_when_everybody_has_answered() -> None:
    pending = asked()
    arrives(pending, *DEVICES)
    for _ in DEVICES:
        assert pending.is_open(START)
        pending.arrivals.get()
    assert not pending.is_open(START)


def test_who_has_answered_is_not_noted_as_lost() -> None:
    pending = asked()
    arrives(pending, "a")
    pending.note_lost({"a": START, "b": START})
    assert pending.out() == (["b"], ["c", "d"])
