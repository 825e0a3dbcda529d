"""What an agent reads of a flood: each kind of message has its own limit."""

from __future__ import annotations

import pytest

from device_agent.daemon.arrival_limits import RATES, ArrivalLimits
from edgefed.transport.inbox import Incoming
from edgefed.wire.topics import Topics
from tests.coordinator.light_devices import HandClock

TOPICS = Topics("limits")
BLOB = "0" * 64
MANY = 100_000

KINDS = {
    TOPICS.task("d"): "task",
    TOPICS.receipt("d"): "receipt",
    TOPICS.cancel("d"): "cancel",
    TOPICS.down_need("d"): "need",
    TOPICS.down_chunk("d"): "c",
    TOPICS.broadcast_chunk(BLOB): "c",
    TOPICS.birth("d"): "birth",
    TOPICS.ping("d"): "ping",
    TOPICS.log_request("d"): "log",
    TOPICS.coordinator(): "coordinator",
}


def read_of(limits: ArrivalLimits, topic: str, payload: bytes = b"x", count: int = MANY) -> int:
    return sum(limits.admit(Incoming(topic, payload, retained=False)) for _ in range(count))


@pytest.mark.parametrize(("topic", "leaf"), KINDS.items())
def test_a_flood_of_one_kind_leaves_the_others(topic: str, leaf: str) -> None:
    limits = ArrivalLimits(TOPICS, HandClock())
    assert read_of(limits, topic) == RATES[leaf].burst
    assert sum(limits.refused().values()) == MANY - RATES[leaf].burst
    for other, kind in KINDS.items():
        assert read_of(limits, other, count=1) == (kind != leaf)


def test_rounds_of_50_ms_are_read_for_minutes() -> None:
    clock = HandClock()
    limits = ArrivalLimits(TOPICS, clock)
    for _ in range(2400):
        for topic, count in (
            (TOPICS.task("d"), 2),
            (TOPICS.receipt("d"), 2),
            (TOPICS.coordinator(), 4),
        ):
            assert read_of(limits, topic, count=count) == count
        clock.seconds += 0.05


def test_time_lets_more_in() -> None:
    clock = HandClock()
    limits = ArrivalLimits(TOPICS, clock)
    read_of(limits, TOPICS.task("d"))
    clock.seconds += 2
    assert read_of(limits, TOPICS.task("d")) == 2 * RATES["task"].per_second


def test_tasks_of_another_run_leave_those_of_the_current_one() -> None:
    limits = ArrivalLimits(TOPICS, HandClock())
    limits.know_run("r-7")
    topic = TOPICS.task("d")
    assert read_of(limits, topic, b"run r-none") == RATES["task of another run"].burst
    assert read_of(limits, topic, b"run r-7", 100) == 100
    limits.know_run("")
    assert read_of(limits, topic, b"any", 100) == 100


def test_a_topic_that_is_not_the_agents_is_not_read() -> None:
    limits = ArrivalLimits(TOPICS, HandClock())
    for topic in ("other/limits/down/d/task", f"{TOPICS.root}/down/d", f"{TOPICS.root}/down/d/x"):
        assert read_of(limits, topic, count=1) == 0
    assert limits.refused() == {}
