"""Many tasks, and many messages: an agent keeps working on one, and tells what it did not read."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from benchmarks.fuzzing.agent_targets import BLOBS, DEVICE, MODEL, end, unconnected_agent
from benchmarks.fuzzing.fleet import TOPICS, FuzzClock
from device_agent.daemon.arrival_limits import COMPLAIN_EVERY, LOOK_EVERY, OverflowReport
from device_agent.tasks.task_session import PREEMPTIONS
from edgefed.transport.inbox import InboxCounts, Incoming
from edgefed.wire.envelope import encode
from edgefed.wire.messages import BlobRef, CoordinatorState, Task
from edgefed.wire.tensors import digest
from tests.agent.replies import reply
from tests.complete_task import complete


def long_task(exchange: str) -> Incoming:
    """A task whose blob is here, so that it trains at once, and for long."""
    fields = {
        "run": "r-1",
        "exchange": exchange,
        "index": 0,
        "round": 1,
        "question": "fit",
        "device": DEVICE,
        "deadline": 60.0,
        "seed": 1,
        "algorithm": "fedavg",
        "settings": {},
        "model": MODEL,
        "shape": (1, 2, 2),
        "classes": 2,
        "training": {"epochs": 10**6, "batch_size": 4},
        "codec": "fp32",
        "samples": 8,
        "blobs": {"weights": BlobRef(digest=digest(BLOBS[0]), size=len(BLOBS[0]))},
        "params": {},
    }
    task = Task(**complete(fields))
    return Incoming(TOPICS.task(DEVICE), encode(task), retained=False)


def test_a_task_that_trains_is_given_up_for_others_only_so_often(tmp_path: Path) -> None:
    clock = FuzzClock()
    agent = unconnected_agent(tmp_path, clock)
    try:
        begun = []
        for number in range(30):
            agent._take(long_task(f"r-1-{number}"))
            if agent._training.work_on(f"r-1-{number}"):
                begun.append(number)
        assert begun == list(range(1 + int(PREEMPTIONS.burst)))
        clock.move(1.01 / PREEMPTIONS.per_second)
        agent._take(long_task("r-1-late"))
        assert agent._training.work_on("r-1-late")
    finally:
        end(agent)


def test_without_a_broker_nothing_that_cannot_be_repeated_wakes_an_agent(tmp_path: Path) -> None:
    clock = FuzzClock()
    agent = unconnected_agent(tmp_path, clock)
    try:
        agent._resender.put(reply(1), clock.monotonic())
        agent._reporter.write()
        clock.move(60.0)
        agent._next_telemetry = clock.monotonic() + 1.0
        assert agent._patience() < 0.1
        agent._link._up.clear()
        assert agent._patience() == 1.0
    finally:
        end(agent)


def test_a_new_coordinator_is_told_the_state_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = unconnected_agent(tmp_path, FuzzClock())
    told: list[bool] = []
    monkeypatch.setattr(agent._reporter, "repeat", told.append)
    try:
        for session, status in (("a", "online"), ("a", "online"), ("b", "lost"), ("b", "online")):
            fields = {"session": 8 * session, "owner": "o", "status": status, "run": "r-1"}
            state = CoordinatorState.model_validate(fields)
            agent._take(Incoming(TOPICS.coordinator(), encode(state), retained=True))
    finally:
        end(agent)
    assert told == [True, True]


def test_what_was_not_read_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    counts = InboxCounts()
    report = OverflowReport(lambda: counts)
    with caplog.at_level(logging.WARNING):
        assert not report.due(0.0)
        counts = InboxCounts(refused={"task": 900})
        assert not report.due(LOOK_EVERY / 2), "it is not looked at so soon"
        assert report.due(1.0)
        counts = InboxCounts(refused={"task": 950, "cancel": 3})
        assert report.due(2.0)
        assert report.refused == {"task": 950, "cancel": 3}
        assert caplog.messages == [
            "messages over the limits of this device were not read: task 900"
        ]
        counts = InboxCounts(dropped_chunks=2, refused={"task": 951, "cancel": 3})
        assert report.due(2.0 + COMPLAIN_EVERY)
    assert caplog.messages[1:] == [
        "messages dropped because they came too fast: 2; they are sent again",
        "messages over the limits of this device were not read: task 951, cancel 3",
    ]
