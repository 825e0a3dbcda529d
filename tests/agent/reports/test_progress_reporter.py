"""The status file shows the last state, and is not written for every state of a short task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from device_agent.identity.identity import Identity
from device_agent.limits.decision import Pause
from device_agent.reports.progress_reporter import UPLOAD_AFTER, WRITE_EVERY, ProgressReporter
from device_agent.reports.status_file import NAME
from edgefed.config.values.address import Address
from edgefed.wire.messages import Birth, Progress
from tests.coordinator.light_devices import HandClock


class Reported:
    """A reporter on a clock that is moved by hand, with what it published."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.published: list[Progress] = []
        self._file = folder / NAME
        birth = Birth(session="0123456789abcdef", status="online", samples=3)
        self.reporter = ProgressReporter(
            Identity("f", "a", birth),
            Address("127.0.0.1", 1883),
            folder,
            self.clock,
            self.published.append,
        )

    def tell(self, *states: Any) -> None:
        for state in states:
            self.reporter.tell(state, connected=True)

    @property
    def shown(self) -> str:
        return str(json.loads(self._file.read_bytes())["state"])


@pytest.fixture
def reported(tmp_path: Path) -> Reported:
    return Reported(tmp_path)


def test_states_that_follow_at_once_are_published_and_the_last_is_written_when_due(
    reported: Reported,
) -> None:
    reported.tell("invited", "train", "failed")
    assert [each.state for each in reported.published] == ["invited", "train", "failed"]
    assert reported.shown == "invited"
    due = reported.reporter.next_due()
    assert due == pytest.approx(reported.clock.monotonic() + WRITE_EVERY)
    reported.clock.seconds += WRITE_EVERY / 2
    reported.reporter.due(reported.clock.monotonic())
    assert reported.shown == "invited"
    reported.clock.seconds += WRITE_EVERY / 2 + 0.001
    reported.reporter.due(reported.clock.monotonic())
    assert reported.shown == "failed"
    assert reported.reporter.next_due() is None


def test_an_upload_is_reported_only_once_it_has_lasted(reported: Reported) -> None:
    reported.tell("train", "upload", "done")
    assert [each.state for each in reported.published] == ["train", "done"]
    reported.tell("upload")
    began = reported.clock.monotonic()
    reported.clock.seconds += UPLOAD_AFTER - 0.01
    reported.reporter.due(reported.clock.monotonic())
    assert reported.reporter.next_due() == pytest.approx(began + UPLOAD_AFTER)
    reported.clock.seconds += 0.02
    reported.reporter.due(reported.clock.monotonic())
    reported.reporter.due(reported.clock.monotonic())
    assert [each.state for each in reported.published] == ["train", "done", "upload"]
    assert reported.reporter.next_due() is None


def test_an_upload_after_which_the_device_pauses_is_reported_at_once(reported: Reported) -> None:
    reported.reporter.note_pause(Pause(frozenset({"hottest"}), "hot"))
    reported.tell("upload")
    assert [(each.state, each.may_train) for each in reported.published] == [("upload", False)]


def test_a_state_after_a_pause_is_written_at_once(reported: Reported) -> None:
    reported.tell("train")
    reported.clock.seconds += 1
    reported.tell("done")
    assert reported.shown == "done"


def test_the_last_state_of_an_agent_that_ends_is_written(reported: Reported) -> None:
    reported.tell("train", "idle")
    reported.reporter.write()
    assert reported.shown == "idle"


def test_why_changed_data_are_not_used_is_said_until_they_are(reported: Reported) -> None:
    problem = "refused its data: it is empty"
    reported.tell("idle")
    reported.reporter.note_data(problem, connected=True)
    reported.reporter.note_data(problem, connected=True)
    reported.tell("train")
    reported.reporter.tell("paused", connected=True, reason="hot")
    reported.reporter.note_data("", connected=True)
    said = [(each.state, each.reason) for each in reported.published]
    assert said == [
        ("idle", ""),
        ("idle", problem),
        ("train", problem),
        ("paused", "hot"),
        ("paused", "hot"),
    ]
