"""The event log on disk: pages in both directions, filters, restarts, and what a crash leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from edgefed.coordinator.journal import stored_events
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.journal.stored_events import FOLDER, KILLED, StoredEvents
from edgefed.events.base.event_entries import EventEntry, EventFilter
from edgefed.events.history.recording import Recording
from edgefed.process.clock import timestamp
from tests.tui.samples import NOW, FakeClock

ALL = EventFilter(routine=True)


class Log:
    """A coordinator's log and journal, which can end and begin again."""

    def __init__(self, folder: Path, party: str = "coordinator") -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.begin(party)

    def begin(self, party: str = "coordinator") -> None:
        self.events = StoredEvents(self.folder, self.clock, party)
        self.journal = EventJournal("tests", self.clock)
        self.events.begin(self.journal)

    def note(self, text: str, level: str = "info") -> None:
        self.clock.seconds += 1
        self.journal.emit("note", level=level, text=text)

    def lose(self, device: str, reason: str = "") -> None:
        self.clock.seconds += 1
        self.journal.emit("device", device=device, state="lost", fraction=0.0, reason=reason)

    def end(self, *, at: float | None = None, stopped: bool = False) -> None:
        """End; the last sign of life is ``at`` seconds after the beginning."""
        if stopped:
            self.journal.emit("note", text=self.events.stopped)
        self.journal.close()
        self.events.close()
        alive = (NOW + timedelta(seconds=self.clock.seconds if at is None else at)).timestamp()
        for path in (self.folder / FOLDER).iterdir():
            os.utime(path, (alive, alive))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path)
    yield log
    log.end()


def whole(
    events: StoredEvents, wanted: EventFilter, *, forwards: bool = False, limit: int = 7
) -> list[EventEntry]:
    """Read every page, newest first."""
    found: list[EventEntry] = []
    place: int | None = 0 if forwards else None
    while True:
        page = (
            events.page(wanted, after=place, limit=limit)
            if forwards
            else events.page(wanted, before=place, limit=limit)
        )
        found += page.entries
        if page.next is None:
            return found[::-1] if forwards else found
        assert len(page.entries) <= limit
        place = page.next


def texts(entries: list[EventEntry]) -> list[str]:
    return [entry.text for entry in entries]


def test_pages_in_both_directions_hold_every_entry_once(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_events, "FILE_BYTES", 1500)
    monkeypatch.setattr(stored_events, "FILES", 100)
    monkeypatch.setattr(stored_events, "BLOCK", 50)
    monkeypatch.setattr(stored_events, "SCANNED", 3000)
    for number in range(200):
        log.note(f"note {number} ä")
    assert len(list((log.folder / FOLDER).iterdir())) > 5
    backwards = whole(log.events, ALL)
    assert texts(backwards) == [f"note {number} ä" for number in reversed(range(200))]
    assert whole(log.events, ALL, forwards=True) == backwards
    assert len({entry.position for entry in backwards}) == 200
    middle = backwards[77].position
    (before,) = log.events.page(ALL, before=middle, limit=1).entries
    (at,) = log.events.page(ALL, after=middle, limit=1).entries
    (after,) = log.events.page(ALL, after=middle + 1, limit=1).entries
    assert texts([after, at, before]) == ["note 123 ä", "note 122 ä", "note 121 ä"]


def test_the_next_entry_has_the_position_at_the_end(log: Log) -> None:
    log.note("before")
    end = log.events.page(ALL).end
    assert log.events.page(ALL, after=end).entries == ()
    log.note("later")
    (entry,) = log.events.page(ALL, after=end).entries
    assert (entry.text, entry.position) == ("later", end)


def test_the_oldest_file_goes_and_positions_stay(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_events, "FILE_BYTES", 400)
    monkeypatch.setattr(stored_events, "FILES", 3)
    for number in range(20):
        log.note(f"note {number}")
    kept = whole(log.events, ALL)
    assert len(list((log.folder / FOLDER).iterdir())) == 3
    assert 3 < len(kept) < 20
    assert kept[0].text == "note 19"
    assert whole(log.events, ALL, forwards=True) == kept
    log.end()
    log.begin()
    assert whole(log.events, ALL)[1:] == kept


def test_filters(log: Log) -> None:
    log.note("a fan is loud")
    log.lose("jetson-03", 'its "fan" \\ broke')
    log.lose("jetson-04")
    log.note("the broker is slow", "warning")
    order = {"action": "device.pause", "about": "jetson-03", "by": "operator.anna"}
    log.journal.emit("order", **order, outcome="taken", reason="")
    log.journal.emit("order", **{**order, "by": "bob"}, outcome="refused", reason="No.")
    reply = {"round": 1, "exchange": "e", "device": "jetson-04", "accepted": 1}
    log.journal.emit("reply", **reply, outcome="accepted")
    log.journal.emit("reply", **reply, outcome="rejected", reason="norm")
    log.journal.emit("run", run="r-1", status="failed", reason="no space")

    def words(text: str, **more: bool) -> list[str]:
        wanted = EventFilter.parse(text).model_copy(update=more)
        found = whole(log.events, wanted)
        assert whole(log.events, wanted, forwards=True) == found
        return [entry.word for entry in found][::-1]

    everything = ["note", "lost", "lost", "warning", "taken", "refused", "rejected", "failed"]
    assert words("") == everything
    assert words("", routine=True) == [*everything[:-2], "accepted", *everything[-2:]]
    assert words("", problems=True) == ["lost", "lost", "warning", "refused", "rejected", "failed"]
    assert words("", problems=False) == ["note", "taken"]
    assert words("device:JETSON-03") == ["lost", "taken", "refused"]
    assert words("device:jetson-03 kind:lost") == ["lost"]
    assert words("kind:order") == ["taken", "refused"]
    assert words("kind:accepted") == ["accepted"]
    assert words("kind:los") == []
    assert words("by:anna") == ["taken"]
    assert words("FAN") == ["note", "lost"]
    assert words('"fan" \\') == ["lost"]
    assert words("fan loud") == ["note"]
    assert words("time") == []  # a name in the file, and no text


def test_a_killed_coordinator_tells_how_long_it_was_away(log: Log) -> None:
    assert whole(log.events, ALL) == []  # the first start is no outage
    log.note("at work")
    log.end(at=10.0)
    log.clock.seconds = 610.0
    log.begin()
    outage, before = whole(log.events, ALL)
    assert before.text == "at work"
    assert outage.text == f"coordinator away for 10 min: {KILLED}"
    assert outage.since == timestamp(NOW + timedelta(seconds=10))
    assert outage.time == timestamp(NOW + timedelta(seconds=610))
    assert (outage.word, outage.problem) == ("outage", True)


def test_an_event_after_the_last_sign_of_life_is_one(log: Log) -> None:
    log.note("at work")
    log.end(at=-100.0)
    log.begin()
    assert whole(log.events, ALL)[0].since == timestamp(NOW + timedelta(seconds=1))


@pytest.mark.parametrize("party", ["coordinator", "gateway"])
def test_a_coordinator_or_gateway_that_was_stopped_says_so(party: str, tmp_path: Path) -> None:
    log = Log(tmp_path, party)
    log.note("at work")
    log.end(at=50.0, stopped=True)
    log.clock.seconds = 61.0
    log.begin(party)
    outage, stopped = whole(log.events, ALL)[:2]
    log.end()
    assert stopped.text == f"the {party} stopped"
    assert outage.text == f"{party} away for 60 s: stopped"
    assert outage.since == timestamp(NOW + timedelta(seconds=1))
    assert (outage.word, outage.problem) == ("outage", False)


def test_a_line_that_a_kill_cut_short_is_left_out(log: Log) -> None:
    log.note("before")
    log.end()
    (path,) = (log.folder / FOLDER).iterdir()
    with path.open("ab") as file:
        file.write(b'{"time": "2026')
    log.begin()
    log.note("later")
    outage = f"coordinator away for 0 s: {KILLED}"
    assert texts(whole(log.events, ALL)) == ["later", outage, "before"]


def test_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_events, "BEAT", 0.01)
    log = Log(tmp_path)
    log.note("at work")
    (path,) = (tmp_path / FOLDER).iterdir()
    os.utime(path, (0, 0))
    while path.stat().st_mtime == 0:
        pass
    log.events.close()
    os.utime(path, (0, 0))
    assert path.stat().st_mtime == 0


def test_a_snapshot_begins_with_the_newest_lines(log: Log) -> None:
    for number in range(9):
        log.note(f"note {number}", "warning")
    lines = log.events.with_lines(log.journal.snapshot, 5).lines
    assert [(line.text, line.mark) for line in lines] == [
        (f"note {number}", "!") for number in (8, 7, 6, 5, 4)
    ]
    assert lines == log.journal.snapshot.lines[:5]


def test_the_outage_is_in_the_recording_of_a_run_that_is_taken_up_again(log: Log) -> None:
    path = log.folder / "events.jsonl"
    log.journal.open(path)
    log.note("in the run")
    log.journal.close()
    log.end()
    log.clock.seconds += 60
    log.begin()
    log.journal.open(path)
    log.journal.close()
    log.end()
    log.begin()
    log.journal.open(log.folder / "other.jsonl")
    recorded = [event.fields["text"] for event in Recording.read(path).events() if event]
    assert recorded == ["in the run", f"coordinator away for 60 s: {KILLED}"]
    assert len(Recording.read(log.folder / "other.jsonl")) == 0
