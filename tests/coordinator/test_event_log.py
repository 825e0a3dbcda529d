"""The coordinator's log: devices, rounds and scores, one line each, at a bounded rate."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from edgefed.coordinator.journal.event_journal import MAX_LINES, WINDOW, EventJournal, EventLog
from edgefed.events.base.model import EventKind
from edgefed.terminal.logs import _OneLine
from tests.coordinator.devices.test_device_registry import Hands


class Scene:
    """A journal and the log that listens to it."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        log.set_level(logging.INFO, "edgefed.coordinator.journal.event_journal")
        self.clock = Hands()
        self.journal = EventJournal("fleet", self.clock)
        self.journal.listen(EventLog(self.clock).take)
        self._log = log

    def happens(self, kind: EventKind, **fields: Any) -> list[tuple[str, str]]:
        """Return what an event has logged: level and text."""
        self._log.clear()
        self.journal.emit(kind, **fields)
        return [(record.levelname, record.getMessage()) for record in self._log.records]


@pytest.fixture
def scene(caplog: pytest.LogCaptureFixture) -> Scene:
    return Scene(caplog)


def test_devices_that_come_and_go_are_logged(scene: Scene) -> None:
    joined = scene.happens("device", device="one", joined=True, samples=5, state="idle")
    assert joined == [("INFO", "device one joined, 5 samples")]
    assert scene.happens("device", device="one", state="train", fraction=0.5) == []
    assert scene.happens("device", device="one", cpu=5.0) == []
    assert scene.happens("device", device="one", state="lost") == [("WARNING", "device one lost")]
    back = scene.happens("device", device="one", joined=True, returned=True, samples=5)
    assert back == [("INFO", "device one returned, 5 samples")]


def test_a_run_is_logged_from_its_start_to_its_end(scene: Scene) -> None:
    told = {"run": "r-1", "algorithm": "fedavg", "rounds": 2, "round": 0, "reason": ""}
    assert scene.happens("run", status="running", **told) == [
        ("INFO", "run r-1 running, fedavg, 2 rounds")
    ]
    assert scene.happens("run", status="running", **told) == [], "the same once"
    assert scene.happens("round", run="r-1", round=1) == []
    scored = {"accuracy": 0.5, "replies": 2, "late": 1, "seconds": 3.0}
    assert scene.happens("scored", run="r-1", round=1, **scored) == [
        ("INFO", "run r-1: round 1 done in 3 s: accuracy 0.500, 2 replies, 1 late")
    ]
    ended = {**told, "round": 2, "accuracy": 0.75}
    assert scene.happens("run", status="finished", **ended) == [
        ("INFO", "run r-1 finished after round 2 of 2, accuracy 0.750")
    ]
    assert scene.happens("run", run="r-1", status="failed", reason="a bug") == [
        ("WARNING", "run r-1 failed: a bug")
    ]


def test_replies_are_logged_when_they_are_not_merged(scene: Scene) -> None:
    reply = {"device": "one", "round": 1, "exchange": "r-1-0", "accepted": 1}
    assert scene.happens("reply", outcome="accepted", **reply) == []
    assert scene.happens("reply", outcome="rejected", reason="NaN", **reply) == [
        ("WARNING", "device one rejected: NaN")
    ]


def test_label_bounties_are_logged(scene: Scene) -> None:
    rows: dict[str, list[Any]] = {"bounties": [], "budgets": [], "removed": []}
    totals = {"open": 2, "closed": 0, "cancelled": 1}
    assert scene.happens("labels", run="r-1", **rows, totals=totals) == [
        ("INFO", "run r-1: label bounties: 2 open, 1 cancelled")
    ]
    assert scene.happens("labels", run="r-1", **rows) == []


def test_notes_are_logged_at_their_level(scene: Scene) -> None:
    assert scene.happens("note", text="restored") == [("INFO", "restored")]
    assert scene.happens("note", level="warning", text="lost") == [("WARNING", "lost")]


def test_hundreds_of_devices_make_a_bounded_number_of_lines(scene: Scene) -> None:
    lines = [
        line
        for number in range(300)
        for line in scene.happens("device", device=f"d-{number}", joined=True, samples=1)
    ]
    assert len(lines) == MAX_LINES
    scene.clock.time += WINDOW
    again = scene.happens("device", device="d-0", state="lost")
    assert again == [
        ("WARNING", f"{300 - MAX_LINES} more lines about devices were omitted"),
        ("WARNING", "device d-0 lost"),
    ]
    scene.clock.time += WINDOW
    assert scene.happens("device", device="d-1", state="lost") == [("WARNING", "device d-1 lost")]


def test_what_a_device_says_stays_on_its_line() -> None:
    text = "a\nWARNING forged\r\x1b[31m\u2028"
    record = logging.LogRecord("edgefed", logging.INFO, __file__, 1, "%s", (text,), None)
    line = _OneLine("%(message)s").format(record)
    assert line == "a WARNING forged  [31m "
