"""Given updates play by the clock; an event file leads to a state, whatever is in it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from edgefed.errors import StorageError
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.process.clock import SystemClock
from edgefed.tui.feeds.recorded_feed import (
    PERIOD,
    RecordedFeed,
    last_of_events,
    of_snapshots,
    read_events,
)
from tests.tui.samples import FakeClock, ago, snapshot

EVENTS = [
    Event(time=ago(10), kind="device", fields={"device": "jetson-01", "state": "idle"}),
    Event(time=ago(9), kind="run", fields={"run": "r-1", "status": "running", "rounds": 3}),
    Event(time=ago(5), kind="round", fields={"run": "r-1", "round": 1}),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{event.line()}\n" for event in EVENTS))
    return path


def test_updates_come_when_they_are_due() -> None:
    clock, got = FakeClock(), list[FeedUpdate]()
    feed = RecordedFeed(of_snapshots([snapshot(1), snapshot(2), snapshot(3)]), clock, play=False)
    feed.start(got.append)
    seen = [len(got)]
    for _ in range(3):
        clock.seconds += PERIOD
        feed.deliver()
        seen.append(len(got))
    assert seen == [1, 2, 3, 3]


def test_the_last_of_a_log_is_the_fold_of_all(log: Path) -> None:
    builder = SnapshotBuilder(Snapshot(fleet="plant-a"))
    for event in EVENTS:
        builder.apply(event)
    assert last_of_events(log, "plant-a").snapshot == builder.snapshot()


def test_a_thread_plays_it_and_stop_ends_it() -> None:
    got, both = list[FeedUpdate](), threading.Event()

    def listener(update: FeedUpdate) -> None:
        got.append(update)
        if len(got) == 2:
            both.set()

    feed = RecordedFeed(of_snapshots([snapshot(1), snapshot(2), snapshot(3)]), SystemClock())
    feed.start(listener)
    assert both.wait(30)
    feed.stop()
    count = len(got)
    feed.deliver()
    assert len(got) == count
    assert not any(thread.name == "recorded-feed" for thread in threading.enumerate())


def test_a_line_cut_by_a_crash_is_left_out(log: Path) -> None:
    log.write_text(log.read_text() + '{"time": "2026-')
    assert read_events(log) == EVENTS


def test_a_line_that_is_no_event_is_left_out(log: Path) -> None:
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([lines[0], "nonsense\n", *lines[1:]]))
    assert read_events(log) == EVENTS


def test_a_missing_log(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        read_events(tmp_path / "events.jsonl")


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("")
    assert last_of_events(tmp_path / "events.jsonl").snapshot == Snapshot()
