"""The devices that a round waits for, in the view of the run."""

from __future__ import annotations

from typing import Any

import pytest

from edgefed.events.base.device_rounds import waiting_in_words, waiting_until
from edgefed.events.base.model import Event, EventKind
from edgefed.events.base.snapshot import Snapshot, WaitingView
from edgefed.events.state.fold import SnapshotBuilder

NOW = "2024-05-06T07:08:09.000Z"
UNTIL = "2024-05-06T07:08:39.000Z"
WAITING = {"lost": ["c"], "online": ["d"], "more": 2, "until": UNTIL}


class Course:
    """A run whose exchange waits for c, which is lost, for d, and for two more."""

    def __init__(self) -> None:
        self._builder = SnapshotBuilder(Snapshot())
        self.happens("run", run="r-1", status="running")
        self.happens("exchange", exchange="r-1-0", phase="broadcast")
        self.happens("exchange", exchange="r-1-0", waiting=WAITING)

    def happens(self, kind: EventKind, **fields: Any) -> None:
        self._builder.apply(Event(time=NOW, kind=kind, fields=fields))

    def replies(self, device: str, outcome: str = "accepted") -> None:
        self.happens("reply", device=device, outcome=outcome, accepted=1, round=1, loss=None)

    @property
    def waiting(self) -> WaitingView | None:
        run = self._builder.snapshot().run
        assert run is not None
        return run.waiting


def test_who_answers_is_not_waited_for() -> None:
    course = Course()
    course.replies("d")
    assert course.waiting == WaitingView(lost=("c",), more=2, until=UNTIL)
    course.replies("e")
    assert course.waiting == WaitingView(lost=("c",), more=1, until=UNTIL)
    course.replies("c", "failed")
    course.replies("f")
    assert course.waiting is None


def test_the_first_answers_phase_keeps_who_is_waited_for() -> None:
    course = Course()
    course.happens("exchange", exchange="r-1-0", phase="collect")
    assert course.waiting == WaitingView.model_validate(WAITING)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("exchange", {"exchange": "r-1-0", "waiting": None}),
        ("exchange", {"exchange": "r-1-0", "phase": "broadcast"}),
        ("exchange", {"exchange": "r-1-1", "phase": "broadcast"}),
        ("exchange", {"phase": "merge"}),
        ("round", {"run": "r-1", "round": 2}),
        ("scored", {"run": "r-1", "round": 1}),
        ("run", {"run": "r-1", "status": "aborted"}),
    ],
)
def test_nobody_is_waited_for_when_the_exchange_is_over(
    kind: EventKind, fields: dict[str, Any]
) -> None:
    course = Course()
    course.happens(kind, **fields)
    assert course.waiting is None


@pytest.mark.parametrize(
    ("waiting", "most", "words"),
    [
        ({"lost": ["c"]}, 3, "c (lost)"),
        ({"online": ["d"]}, 3, "d"),
        (WAITING, 3, "c (lost), d and 2 more"),
        (WAITING, 1, "c (lost) and 3 more"),
        (WAITING, 0, "4 devices"),
        ({"lost": ["c"]}, 0, "1 device"),
        (
            {"lost": ["a", "b", "c"], "online": ["d", "e"]},
            3,
            "a (lost), b (lost), c (lost) and 2 more",
        ),
    ],
)
def test_words(waiting: dict[str, Any], most: int, words: str) -> None:
    assert waiting_in_words(WaitingView.model_validate(waiting), most) == words


def test_until_is_a_time_of_day() -> None:
    view = WaitingView(lost=("dev-3",), until="2024-05-06T12:03:40.000Z")
    assert waiting_until(view) == "dev-3 (lost), until 12:03:40 UTC"
