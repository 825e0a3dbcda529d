"""Alerts on the dashboard: the bell, the notice, and the Overview's list."""

from __future__ import annotations

from datetime import timezone

import pytest
from textual.pilot import Pilot

from edgefed.events.base.alert_events import AlertView
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.tui.app import Dashboard
from edgefed.tui.feeds.recorded_feed import PERIOD
from tests.tui.driving import drive, notices, press, screen_text, settle
from tests.tui.samples import FakeClock, ago, feed, fine, snapshot

LOST = AlertView(alert="lost_devices", text="9 of 20 devices lost", since=ago(65))
SLOW = AlertView(alert="no_round", about="r-0142", text="no round finished for 60 s", since=ago(1))


def with_alerts(*alerts: AlertView) -> FeedUpdate:
    return fine(snapshot(alerts=alerts))


def rings(
    monkeypatch: pytest.MonkeyPatch, *updates: FeedUpdate, bell: bool = True
) -> tuple[int, list[tuple[str, str]]]:
    """How often the bell rang during these updates, and what was told."""
    clock, rung, told = FakeClock(), [], list[tuple[str, str]]()
    source = feed(clock, *updates)
    app = Dashboard(source, None, clock, zone=timezone.utc, bell=bell)
    monkeypatch.setattr(app, "bell", lambda: rung.append(clock.seconds))

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "2")
        for _ in updates[1:]:
            clock.seconds += PERIOD
            source.deliver()
            await settle(pilot)
        told.extend(notices(pilot))

    drive(app, scenario)
    return len(rung), told


def test_the_bell_rings_once_for_each_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    course = [with_alerts(), with_alerts(LOST), with_alerts(LOST), with_alerts(LOST, SLOW)]
    assert rings(monkeypatch, *course, with_alerts(SLOW)) == (
        2,
        [("Alert", LOST.text), ("Alert: r-0142", SLOW.text)],
    )


def test_what_began_before_the_dashboard_rings_no_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rings(monkeypatch, with_alerts(LOST), with_alerts(LOST)) == (0, [])


def test_an_alert_that_begins_again_rings_again(monkeypatch: pytest.MonkeyPatch) -> None:
    again = LOST.model_copy(update={"since": ago(0)})
    course = [with_alerts(), with_alerts(LOST), with_alerts(), with_alerts(again)]
    assert rings(monkeypatch, *course)[0] == 2


def test_without_the_bell_the_notice_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    muted = rings(monkeypatch, with_alerts(), with_alerts(LOST), bell=False)
    assert muted == (0, [("Alert", LOST.text)])


def test_the_overview_names_alerts_first() -> None:
    """The numbers are those of now: the snapshot has one lost device, nine were when it began."""

    async def scenario(pilot: Pilot[None]) -> None:
        lines = [line for line in screen_text(pilot).splitlines() if "1 of 20" in line]
        assert len(lines) == 1
        assert "✗ 1 of 20 devices lost" in lines[0]
        assert "60 s" in lines[0]

    clock = FakeClock()
    drive(Dashboard(feed(clock, with_alerts(LOST)), None, clock, zone=timezone.utc), scenario)
