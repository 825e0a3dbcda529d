"""The event log's entries: which events are problems, the filter line, pages of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgefed.events.base.event_entries import EventEntry, EventFilter
from edgefed.events.base.model import Event, EventKind
from edgefed.events.history import recorded_events
from edgefed.events.history.recorded_events import recorded_page
from edgefed.events.history.recording import Recording
from edgefed.events.state.lines import entry_of

TIME = "2026-03-04T14:02:31.000Z"
REPLY = {"device": "cam-1", "round": 1, "exchange": "e", "accepted": 1}
ORDER = {"action": "device.pause", "by": "anna", "about": "cam-1", "reason": ""}


def entry(kind: EventKind, **fields: Any) -> EventEntry | None:
    return entry_of(Event(time=TIME, kind=kind, fields=fields))


@pytest.mark.parametrize(
    ("kind", "fields", "word", "problem"),
    [
        ("device", {"device": "cam-1", "state": "lost"}, "lost", True),
        ("device", {"device": "cam-1", "state": "failed"}, "failed", True),
        ("device", {"device": "cam-1", "state": "paused"}, "paused", True),
        ("device", {"device": "cam-1", "joined": True}, "joined", False),
        ("device", {"device": "cam-1", "joined": True, "returned": True}, "returned", False),
        ("device", {"device": "cam-1", "forgotten": True}, "forgotten", False),
        (
            "device",
            {"device": "cam-1", "moved": 1, "standing": "suspect", "trust": 1, "trust_reason": ""},
            "suspect",
            True,
        ),
        ("reply", {**REPLY, "outcome": "accepted"}, "accepted", False),
        ("reply", {**REPLY, "outcome": "late"}, "late", True),
        ("reply", {**REPLY, "outcome": "rejected"}, "rejected", True),
        ("order", {**ORDER, "outcome": "taken"}, "taken", False),
        ("order", {**ORDER, "outcome": "refused"}, "refused", True),
    ],
)
def test_devices(kind: EventKind, fields: dict[str, Any], word: str, problem: bool) -> None:
    found = entry(kind, **fields)
    assert found is not None
    assert (found.word, found.problem, found.device) == (word, problem, "cam-1")
    assert found.by == ("anna" if kind == "order" else "")
    assert found.routine == (word == "accepted")


@pytest.mark.parametrize(
    ("kind", "fields", "word", "problem"),
    [
        ("run", {"run": "r-1", "status": "finished"}, "finished", False),
        ("run", {"run": "r-1", "status": "failed"}, "failed", True),
        ("scored", {"run": "r-1", "round": 3}, "round", False),
        ("alert", {"alert": "no_round", "about": "", "text": "x", "over": False}, "alert", True),
        ("alert", {"alert": "no_round", "about": "", "text": "x", "over": True}, "over", False),
        ("note", {"text": "x", "level": "info"}, "note", False),
        ("note", {"text": "x", "level": "warning"}, "warning", True),
        ("note", {"text": "x", "level": "info", "since": TIME}, "outage", False),
        ("order", {**ORDER, "action": "run.order", "outcome": "taken"}, "taken", False),
    ],
)
def test_other_events(kind: EventKind, fields: dict[str, Any], word: str, problem: bool) -> None:
    found = entry(kind, **fields)
    assert found is not None
    assert (found.word, found.problem, found.device) == (word, problem, "")
    assert found.run == fields.get("run", "")
    assert found.since == fields.get("since", "")


def test_events_too_small_for_a_line_have_no_entry() -> None:
    assert entry("device", device="cam-1", state="train") is None
    assert entry("exchange", phase="merge") is None


def test_the_filter_line() -> None:
    found = EventFilter.parse("Device:cam-1 loud kind:lost by:anna at 14:02 run:3 by:")
    assert found == EventFilter(
        device="cam-1", kind="lost", by="anna", words=("loud", "at", "14:02", "run:3", "by:")
    )
    long = EventFilter.parse(" ".join(["x" * 300] * 20))
    assert long.words == ("x" * 200,) * 16


def test_pages_of_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_events, "CHUNK", 7)
    monkeypatch.setattr(recorded_events, "MOST_READ", 25)
    path = tmp_path / "events.jsonl"
    events = [
        Event(time=TIME, kind="note", fields={"text": f"note {number}", "level": level})
        for number in range(60)
        for level in ["warning" if number % 9 == 0 else "info"]
    ]
    path.write_text("".join(f"{event.line()}\n" for event in events))
    recording = Recording.read(path)

    def numbers(wanted: EventFilter, *, forwards: bool = False, done: int = 50) -> list[int]:
        found: list[int] = []
        place: int | None = 0 if forwards else None
        while True:
            page = (
                recorded_page(recording, done, wanted, after=place, limit=4)
                if forwards
                else recorded_page(recording, done, wanted, before=place, limit=4)
            )
            assert page.end == done
            assert len(page.entries) <= 4
            assert all(each.text == f"note {each.position}" for each in page.entries)
            found += [each.position for each in page.entries]
            if page.next is None:
                return found
            place = page.next

    assert numbers(EventFilter()) == list(range(49, -1, -1))
    assert numbers(EventFilter(), forwards=True) == list(range(50))
    problems = EventFilter(problems=True)
    assert numbers(problems) == [45, 36, 27, 18, 9, 0]
    assert numbers(problems, forwards=True, done=60) == [0, 9, 18, 27, 36, 45, 54]
