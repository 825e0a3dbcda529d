"""The display follows the feed, freezes, and draws only what is visible."""

from __future__ import annotations

from datetime import timezone
from pathlib import Path
from typing import Any

import pytest
from textual.message import Message
from textual.pilot import Pilot

from edgefed.cli.programs.run_launcher import RunLauncher
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import timestamp
from edgefed.tui.app import DRAW_EVERY, Dashboard
from edgefed.tui.feeds.recorded_feed import PERIOD, RecordedFeed
from edgefed.tui.panes.frame.banner import Banner
from edgefed.tui.panes.runs.round import RoundPane
from edgefed.tui.state.messages import Fresh
from tests.cli.programs.test_run_launcher import Coordinator
from tests.tui.driving import drive, press, screen_text, settle, text_of
from tests.tui.samples import (
    FakeClock,
    RecordingControl,
    ago,
    feed,
    fine,
    lines,
    run_view,
    snapshot,
)


class Player:
    """An app, its feed and its clock."""

    def __init__(self, *updates: FeedUpdate) -> None:
        self.clock = FakeClock()
        self.feed: RecordedFeed = feed(self.clock, *updates)
        self.app = Dashboard(self.feed, None, self.clock, zone=timezone.utc)

    async def next(self, pilot: Pilot[None], seconds: float = PERIOD) -> None:
        self.clock.seconds += seconds
        self.feed.deliver()
        await settle(pilot)


def in_round(number: int, **changes: Any) -> FeedUpdate:
    return fine(snapshot(run=run_view(round=number), time=ago(-number), **changes))


def heading(pilot: Pilot[None]) -> str:
    return pilot.app.screen.query_one(RoundPane).border_title or ""


def test_the_screen_follows_the_feed() -> None:
    player = Player(in_round(12), in_round(13))

    async def scenario(pilot: Pilot[None]) -> None:
        assert "Round 12" in heading(pilot)
        await player.next(pilot)
        assert "Round 13" in heading(pilot)

    drive(player.app, scenario)


def test_at_most_two_drawings_a_second() -> None:
    player = Player(in_round(12))

    async def scenario(pilot: Pilot[None]) -> None:
        player.app.post_message(Fresh(in_round(13)))
        await settle(pilot)
        assert "Round 12" in heading(pilot)
        player.clock.seconds += DRAW_EVERY
        player.app.post_message(Fresh(in_round(14)))
        await settle(pilot)
        assert "Round 14" in heading(pilot)

    drive(player.app, scenario)


def test_a_waiting_update_is_replaced_by_a_newer_one() -> None:
    class Other(Message):
        pass

    assert Fresh(in_round(2)).can_replace(Fresh(in_round(1)))
    assert not Fresh(in_round(2)).can_replace(Other())


def test_a_frozen_display_stands_still_until_space() -> None:
    newer = (lines()[0].model_copy(update={"text": "something new"}), *lines())
    player = Player(in_round(12), in_round(13, lines=newer), in_round(14, lines=newer))

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "space")
        before = [text_of(pilot.app.screen.query_one(f"#{name}")) for name in PANES]
        await player.next(pilot)
        await player.next(pilot, seconds=20)
        assert [text_of(pilot.app.screen.query_one(f"#{name}")) for name in PANES] == before
        banner = text_of(pilot.app.screen.query_one(Banner))
        assert "Frozen at 14:02:31" in banner
        assert "1 events waiting" in banner
        await press(pilot, "space")
        assert "Round 14" in heading(pilot)
        assert "something new" in screen_text(pilot)
        assert not pilot.app.screen.query_one(Banner).display

    drive(player.app, scenario)


PANES = ("round", "accuracy", "attention", "events")


def test_a_hidden_screen_catches_up_when_it_is_shown() -> None:
    player = Player(in_round(12), in_round(13))

    async def scenario(pilot: Pilot[None]) -> None:
        overview = pilot.app.screen
        await press(pilot, "2")
        await player.next(pilot)
        assert "Round 12" in (overview.query_one(RoundPane).border_title or "")
        await press(pilot, "1")
        assert "Round 13" in heading(pilot)

    drive(player.app, scenario)


@pytest.mark.parametrize(("key", "followed"), [("F", True), ("n", False)])
def test_a_screen_is_drawn_where_the_one_over_it_lets_it_show(
    key: str, followed: bool, tmp_path: Path
) -> None:
    clock, around = FakeClock(), Surroundings({"HOME": str(tmp_path)}, tmp_path)
    updates, launcher = feed(clock, in_round(12), in_round(13)), RunLauncher(Coordinator(), around)
    app = Dashboard(updates, RecordingControl(), clock, zone=timezone.utc, launcher=launcher)

    async def scenario(pilot: Pilot[None]) -> None:
        pane = pilot.app.screen.query_one(RoundPane)
        await press(pilot, key)
        assert pilot.app.screen is not pane.screen
        clock.seconds += PERIOD
        updates.deliver()
        await settle(pilot)
        assert ("Round 13 ──" in str(pane.border_title)) == followed
        assert ("Round 13 ──" in screen_text(pilot)) == followed

    drive(app, scenario)


def test_the_deadline_counts_down_without_news() -> None:
    player = Player(in_round(12), FeedUpdate(None, broker=True, coordinator=True))

    async def scenario(pilot: Pilot[None]) -> None:
        shown = player.app._watch_of_feed
        first = shown.shown().now
        player.clock.seconds += 7
        assert (shown.shown().now - first).total_seconds() == 7

    drive(player.app, scenario)


WAITING = {"lost": ("jetson-07",), "online": ("jetson-08",), "more": 3, "until": ago(-23)}


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ((160, 28), "waiting for jetson-07 (lost), jetson-08 and 3 more, 23 s"),
        ((80, 24), "awaits 5 devices, 23 s"),
    ],
)
def test_the_round_names_whom_it_waits_for_and_how_long(size: tuple[int, int], words: str) -> None:
    update = fine(snapshot(run=run_view(waiting=WAITING), time=ago(0)))
    player = Player(update, update)

    async def scenario(pilot: Pilot[None]) -> None:
        assert words in screen_text(pilot)
        await player.next(pilot, seconds=9)
        assert words.replace("23 s", "14 s") in screen_text(pilot)

    drive(player.app, scenario, size)


def test_a_lost_device_is_named_on_a_small_screen() -> None:
    waiting = {"lost": ("jetson-07",), "until": ago(-23)}
    player = Player(fine(snapshot(run=run_view(waiting=waiting), time=ago(0))))

    async def scenario(pilot: Pilot[None]) -> None:
        assert "waiting for jetson-07 (lost), 23 s" in screen_text(pilot)

    drive(player.app, scenario, (80, 24))


@pytest.mark.parametrize(
    ("width", "layer", "shown"),
    [
        (120, "conv2", "phase 3 of 5: COLLECT (layer conv2, 2 of 4) ── 7 of 10 answers, quorum 8"),
        (80, "conv2", "3/5 COLLECT (layer conv2, 2 of 4) ── 7 of 10, quorum 8"),
        (80, "stage4.block2.convolution2", "3/5 COLLECT ── 7 of 10, quorum 8"),
    ],
)
def test_one_of_several_exchanges_of_a_round_is_named(width: int, layer: str, shown: str) -> None:
    run = run_view(question="layer", detail=f"{layer}, 2 of 4")
    player = Player(fine(snapshot(run=run, time=ago(0))))

    async def scenario(pilot: Pilot[None]) -> None:
        assert heading(pilot) == f"Round 12 ── {shown}"

    drive(player.app, scenario, (width, 24))


def test_a_banner_comes_and_goes() -> None:
    lost = FeedUpdate(in_round(12).snapshot, False, True, "Broker unreachable.", ago(0))
    player = Player(in_round(12), lost, in_round(12))

    async def scenario(pilot: Pilot[None]) -> None:
        banner = pilot.app.screen.query_one(Banner)
        pane = pilot.app.screen.query_one(RoundPane)
        assert (banner.display, pane.region.y) == (False, 1)
        await player.next(pilot)
        assert (banner.display, pane.region.y) == (True, 2)
        assert "numbers from 14:02:31" in text_of(banner)
        assert pane.has_class("-stale")
        await player.next(pilot)
        assert (banner.display, pane.region.y) == (False, 1)
        assert not pane.has_class("-stale")

    drive(player.app, scenario)


def test_loading_is_said_only_after_a_moment() -> None:
    player = Player(FeedUpdate(None, broker=True, coordinator=True))

    async def scenario(pilot: Pilot[None]) -> None:
        assert "Waiting" not in screen_text(pilot)
        player.clock.seconds += DRAW_EVERY
        player.app.post_message(Fresh(FeedUpdate(None, broker=True, coordinator=True)))
        await settle(pilot)
        assert "Waiting for the coordinator" in screen_text(pilot)

    drive(player.app, scenario)


def test_the_feed_is_stopped_with_the_app() -> None:
    player = Player(in_round(12), in_round(13))

    async def scenario(pilot: Pilot[None]) -> None:
        pass

    drive(player.app, scenario)
    player.clock.seconds += 60
    player.feed.deliver()
    assert player.app.latest == in_round(12)


def test_text_from_a_device_cannot_break_the_screen() -> None:
    bad = lines()[0].model_copy(update={"text": "\x1b[31mred\nnext [bold]line[/]", "mark": ""})
    named = run_view(run="r-[1]", algorithm="[b]", reason="\x07")
    player = Player(fine(snapshot(run=named, lines=(bad,), time=timestamp(FakeClock().now()))))

    async def scenario(pilot: Pilot[None]) -> None:
        text = screen_text(pilot)
        assert "?[31mred?next [bold]line[/]" in text
        assert "r-[1] nightly [b]" in text

    drive(player.app, scenario)
