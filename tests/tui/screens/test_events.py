"""The screen of the event log: order, search, filters, pages, restarts, replays, problems."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from edgefed.coordinator.journal import stored_events
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.journal.stored_events import StoredEvents
from edgefed.errors import UnreachableError
from edgefed.events.base.event_entries import EventFilter, EventPage
from edgefed.events.base.snapshot import Snapshot
from edgefed.tui.app import Dashboard
from edgefed.tui.panes.frame.event_log import NOTHING, UNKNOWN, EventLogPane
from edgefed.tui.screens import events as events_screen
from edgefed.tui.screens.device import DeviceScreen
from edgefed.tui.state import event_window
from edgefed.tui.state.interfaces import Events
from tests.tui.driving import drive, heading, inside, notices, press, settle, until
from tests.tui.samples import NOW, FakeClock, feed, fine, snapshot
from tests.tui.state.test_replay import EVENTS, Player


class Log:
    """A coordinator's log, read without a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock(NOW - timedelta(hours=5))
        self.error: Exception | None = None
        self.reads = 0
        self.begin()

    def begin(self) -> None:
        self.stored = StoredEvents(self.folder, self.clock)
        self.journal = EventJournal("tests", self.clock)
        self.stored.begin(self.journal)

    def restart(self) -> None:
        self.stored.close()
        self.begin()

    def event_page(
        self, wanted: EventFilter, *, before: int | None = None, after: int | None = None
    ) -> EventPage:
        assert threading.current_thread() is not threading.main_thread()
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.stored.page(wanted, before=before, after=after)

    def note(self, text: str, level: str = "info") -> None:
        self.clock.seconds += 1
        self.journal.emit("note", level=level, text=text)

    def fill(self) -> None:
        self.note("the broker is slow", "warning")
        for device in ("jetson-03", "jetson-04"):
            fields = {"device": device, "state": "lost", "reason": "connection broke"}
            self.journal.emit("device", **fields, fraction=0.0)
        order = {"action": "device.pause", "about": "jetson-03", "by": "operator.anna"}
        self.journal.emit("order", **order, outcome="taken", reason="")
        reply = {"device": "jetson-05", "round": 1, "exchange": "e", "accepted": 1}
        self.journal.emit("reply", **reply, outcome="accepted")
        self.note("all is well")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path)
    yield log
    log.stored.close()


def app_of(log: Events | None, view: Snapshot | None = None) -> Dashboard:
    clock = FakeClock()
    source = feed(clock, fine(view or snapshot()))
    return Dashboard(source, None, clock, zone=timezone.utc, screen="events", events=log)


def rows(pilot: Pilot[None]) -> list[str]:
    """The rows of the log, without their times."""
    room = pane_of(pilot)._room
    return [line[16:].strip() for line in inside(pilot, "#event-log")[:room] if line.strip()]


def pane_of(pilot: Pilot[None]) -> EventLogPane:
    return pilot.app.screen.query_one(EventLogPane)


async def read(pilot: Pilot[None]) -> None:
    """Wait until nothing more is read."""
    await settle(pilot)
    await until(pilot, lambda: not pane_of(pilot).reading)
    await settle(pilot)


async def search(pilot: Pilot[None], text: str) -> list[str]:
    await press(pilot, "slash")
    pilot.app.screen.query_one("#filter", Input).value = text
    await press(pilot, "enter")
    await read(pilot)
    return rows(pilot)


def test_problems_first_then_the_newest_first_and_all(log: Log) -> None:
    log.fill()

    async def scenario(pilot: Pilot[None]) -> None:
        await read(pilot)
        assert heading(pilot, "#event-log") == "Events   problems first"
        texts = [row.split("  ")[-1].strip() for row in rows(pilot)]
        lost = "lost: connection broke"
        ordered = "operator.anna ordered device pause jetson-03"
        assert texts == [lost, lost, "the broker is slow", "all is well", ordered]
        await press(pilot, "o")
        await read(pilot)
        assert heading(pilot, "#event-log") == "Events   newest first"
        texts = [row.split("  ")[-1].strip() for row in rows(pilot)]
        assert texts == ["all is well", ordered, lost, lost, "the broker is slow"]
        await press(pilot, "v")
        await read(pilot)
        assert rows(pilot)[1].endswith("in 0 s")
        assert len(rows(pilot)) == 6
        await press(pilot, "v", "o")
        await read(pilot)

    drive(app_of(log), scenario)


def test_problems_of_the_whole_log_are_first_however_many_pages_it_has(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_events, "SCANNED", 3000)
    for number in range(400):
        log.note(f"note {number}", "warning" if number in (0, 200) else "info")

    async def scenario(pilot: Pilot[None]) -> None:
        await until(pilot, lambda: len(rows(pilot)) > 10)
        texts = [row.split("  ")[-1].strip() for row in rows(pilot)]
        assert texts[:4] == ["note 200", "note 0", "note 399", "note 398"]
        assert log.reads > 10

    drive(app_of(log), scenario)


def test_search_and_filters(log: Log) -> None:
    log.fill()

    async def scenario(pilot: Pilot[None]) -> None:
        await read(pilot)
        assert [row[0] for row in await search(pilot, "device:jetson-03")] == ["✗", "›"]
        assert len(await search(pilot, "device:jetson-03 kind:lost")) == 1
        assert len(await search(pilot, "by:anna")) == 1
        assert len(await search(pilot, "BROKE")) == 3
        assert "filter: BROKE" in heading(pilot, "#event-log")
        assert pilot.app.screen.focused is pane_of(pilot)
        await search(pilot, "nowhere")
        assert inside(pilot, "#event-log")[0].startswith("No event matches. esc clears the search.")
        await press(pilot, "escape")
        await read(pilot)
        assert len(rows(pilot)) == 5
        assert not pilot.app.screen.query_one("#filter").display

    drive(app_of(log), scenario)


def test_an_outage_is_shown_with_its_beginning_and_end(log: Log) -> None:
    log.fill()
    log.clock.seconds = 3 * 3600.0
    log.stored._alive = None
    log.stored.close()
    log.stored = StoredEvents(log.folder, log.clock)
    log.stored._alive = NOW - timedelta(hours=4)
    log.journal = EventJournal("tests", log.clock)
    log.stored.begin(log.journal)

    async def scenario(pilot: Pilot[None]) -> None:
        await read(pilot)
        assert "coordinator away for 2 h: killed" in rows(pilot)[0]
        await press(pilot, "g")
        text = " ".join(" ".join(inside(pilot, "#event-log")).split())
        assert "(from 03-04 10:02:31 to 03-04 12:02:31)" in text
        assert "2026-03-04 12:02:31 note outage" in text
        assert "lost: connection broke" in rows(pilot)[1]  # of before

    drive(app_of(log), scenario)


def test_a_long_log_is_read_by_pages_and_new_entries_come(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_window, "MOST", 400)
    monkeypatch.setattr(events_screen, "FRESH_EVERY", 0.05)
    for number in range(1500):
        log.note(f"note {number}")
    app = app_of(log)

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "o")
        await read(pilot)
        pane = pane_of(pilot)
        assert rows(pilot)[0].endswith("note 1499")
        assert len(pane.window.rows) <= 400
        await press(pilot, "G")
        await read(pilot)
        assert rows(pilot)[-1].endswith("note 0")
        assert len(pane.window.rows) <= 400
        for _ in range(20):
            await press(pilot, "pageup")
            await read(pilot)
        selected = pane.selected
        assert selected is not None
        assert len(pane.window.rows) <= 400
        assert rows(pilot)[0].endswith(selected.text)
        log.note("and one more")
        app._listen(fine(snapshot(lines=log.journal.snapshot.lines)))
        await pilot.pause(0.3)
        await read(pilot)
        assert pane.selected == selected
        await press(pilot, "g")
        await read(pilot)
        assert rows(pilot)[0].endswith("and one more")
        log.note("and another")
        app._listen(fine(snapshot(lines=log.journal.snapshot.lines)))
        await until(pilot, lambda: rows(pilot)[0].endswith("and another"))
        assert pane.selected is not None
        assert pane.selected.text == "and another"

    drive(app, scenario, (80, 24))


def test_enter_opens_the_device_of_an_entry(log: Log) -> None:
    log.fill()
    log.journal.emit("device", device="gone", state="lost", fraction=0.0, reason="")

    async def scenario(pilot: Pilot[None]) -> None:
        await read(pilot)
        await press(pilot, "enter")
        assert notices(pilot)[-1][1] == "The fleet does not know gone any more."
        await press(pilot, "G", "up", "enter")
        assert notices(pilot)[-1][1] == "The event is about no device."
        await press(pilot, "g", "down", "enter")
        assert isinstance(pilot.app.screen, DeviceScreen)
        assert pilot.app.screen.chosen() == "jetson-04"

    drive(app_of(log), scenario)


def test_what_stands_in_place_of_rows(log: Log) -> None:
    async def empty(pilot: Pilot[None]) -> None:
        await read(pilot)
        assert inside(pilot, "#event-log")[0].strip() == NOTHING
        await press(pilot, "down", "up", "G", "g", "pagedown", "enter", "y")

    async def unknown(pilot: Pilot[None]) -> None:
        assert inside(pilot, "#event-log")[0].strip() == UNKNOWN

    async def failed(pilot: Pilot[None]) -> None:
        await read(pilot)
        assert inside(pilot, "#event-log")[0].strip() == "The coordinator did not answer."
        log.error = None
        log.fill()
        await press(pilot, "o")
        await read(pilot)
        assert len(rows(pilot)) == 5
        log.error = UnreachableError("It is away.", hint="")
        await press(pilot, "v")
        await read(pilot)
        assert inside(pilot, "#event-log")[0].strip() == "It is away."

    drive(app_of(log), empty)
    drive(app_of(None), unknown)
    log.error = UnreachableError("The coordinator did not answer.", hint="see its log")
    drive(app_of(log), failed)


def test_a_replay_shows_the_events_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_screen, "FRESH_EVERY", 0.05)
    player = Player(tmp_path / "events.jsonl", EVENTS)
    app = Dashboard(
        player.feed, None, player.clock, zone=timezone.utc, screen="events", replay=player.feed,
        events=player.feed,
    )  # fmt: skip

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "o")
        await read(pilot)
        assert [row.split()[-1] for row in rows(pilot)] == ["running"]
        player.feed.move("end")
        player.feed.deliver()
        await until(pilot, lambda: len(rows(pilot)) == 8)
        assert rows(pilot)[0].endswith("at 34")
        player.feed.move("previous_event")
        player.feed.deliver()
        await until(pilot, lambda: len(rows(pilot)) == 7)
        assert rows(pilot)[0].startswith("✓  ")

    drive(app, scenario)


def test_the_text_of_an_entry_is_copied(log: Log) -> None:
    log.note(f"a fan {'is very loud ' * 20}")

    async def scenario(pilot: Pilot[None]) -> None:
        await read(pilot)
        await press(pilot, "y")
        assert pilot.app.clipboard.endswith("is very loud ")

    drive(app_of(log), scenario)
