"""When an exchange closes: at its deadline, or after the grace of devices that are lost."""

from __future__ import annotations

import pytest

from edgefed.coordinator.asking import Asking
from edgefed.coordinator.fleet import Delivered
from edgefed.coordinator.records import OpenExchange
from tests.coordinator.test_journal import reply
from tests.worker.tasks import task

START, DEADLINE, GRACE = 1000.0, 300.0, 30.0
DEVICES = ("a", "b", "c", "d")


def asked(*, quorum: int = 2, grace: float | None = GRACE) -> Asking:
    """Return an exchange that is put to four devices."""
    tasks = tuple(task(exchange="r-1-0", device=device) for device in DEVICES)
    exchange = OpenExchange("r-1-0", 0, "fit", 1, tasks, 4, quorum, DEADLINE, lost_grace=grace)
    return Asking(exchange, START)


def arrives(asking: Asking, *devices: str) -> None:
    for device in devices:
        asking.deliver(Delivered(reply(device, 3), dict[str, bytes]().__getitem__, 1.0, 10))


def merged(asking: Asking, *devices: str, at: float) -> None:
    arrives(asking, *devices)
    for _ in devices:
        asking.arrivals.get()
        asking.accept(at)


def test_the_grace_counts_from_the_quorum_when_the_loss_was_before() -> None:
    asking = asked()
    asking.note_lost({"c": START + 1, "d": START + 2})
    assert asking.closes_at() == START + DEADLINE
    merged(asking, "a", at=START + 5)
    assert asking.closes_at() == START + DEADLINE, "the quorum is not met"
    merged(asking, "b", at=START + 9)
    assert asking.closes_at() == START + 9 + GRACE


def test_the_grace_counts_from_the_last_loss_when_the_quorum_was_before() -> None:
    asking = asked()
    merged(asking, "a", "b", at=START + 5)
    asking.note_lost({"c": START + 8, "d": START + 20})
    assert asking.closes_at() == START + 20 + GRACE
    assert asking.is_open(START + 20 + GRACE - 0.1)
    assert not asking.is_open(START + 20 + GRACE)


def test_a_device_that_is_there_is_waited_for_until_the_deadline() -> None:
    asking = asked()
    merged(asking, "a", "b", at=START + 5)
    asking.note_lost({"c": START + 8})
    assert asking.closes_at() == START + DEADLINE
    merged(asking, "d", at=START + 60)
    assert asking.closes_at() == START + 8 + GRACE, "only the lost one is left"


def test_who_is_back_is_waited_for_as_before() -> None:
    asking = asked()
    merged(asking, "a", "b", "d", at=START + 5)
    asking.note_lost({"c": START + 8})
    asking.note_lost({})
    assert asking.closes_at() == START + DEADLINE


def test_the_deadline_comes_first() -> None:
    asking = asked()
    merged(asking, "a", "b", "d", at=START + 5)
    asking.note_lost({"c": START + DEADLINE - 1})
    assert asking.closes_at() == START + DEADLINE


def test_without_a_grace_there_is_only_the_deadline() -> None:
    asking = asked(grace=None)
    merged(asking, "a", "b", "d", at=START + 5)
    asking.note_lost({"c": START + 6})
    assert asking.closes_at() == START + DEADLINE


def test_no_grace_at_all_closes_with_the_quorum() -> None:
    asking = asked(grace=0)
    asking.note_lost({"c": START, "d": START})
    merged(asking, "a", "b", at=START + 5)
    assert not asking.is_open(START + 5)


@pytest.mark.parametrize("quorum", [0, 1])
def test_a_quorum_of_none_is_met_from_the_beginning(quorum: int) -> None:
    asking = asked(quorum=quorum)
    asking.note_lost(dict.fromkeys(DEVICES, START))
    assert asking.closes_at() == START + (GRACE if quorum == 0 else DEADLINE)


def test_what_arrived_and_is_not_merged_is_neither_lost_nor_over() -> None:
    asking = asked(quorum=1)
    merged(asking, "a", "d", at=START + 1)
    asking.note_lost({"b": START + 2, "c": START + 2})
    arrives(asking, "b")
    assert asking.lost_devices() == {"c"}
    assert asking.is_open(START + 2 * GRACE), "a reply is there to be merged"
    asking.arrivals.get()
    assert not asking.is_open(START + 2 * GRACE)


def test_it_is_over_when_everybody_has_answered() -> None:
    asking = asked()
    arrives(asking, *DEVICES)
    for _ in DEVICES:
        assert asking.is_open(START)
        asking.arrivals.get()
    assert not asking.is_open(START)


def test_who_has_answered_is_not_noted_as_lost() -> None:
    asking = asked()
    arrives(asking, "a")
    asking.note_lost({"a": START, "b": START})
    assert asking.out() == (["b"], ["c", "d"])
