"""A recorded run is replayed: by the clock, at a speed, in steps and jumps, and keys control it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta, timezone
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from edgefed.errors import UsageError
from edgefed.events.base.model import Event
from edgefed.events.history.recording import Recording
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import SystemClock, timestamp
from edgefed.tui.app import Dashboard
from edgefed.tui.feeds.recorded_feed import last_of_events
from edgefed.tui.feeds.replay_feed import CHUNK, ReplayFeed
from edgefed.tui.state.closing import ENDS_REPLAY
from edgefed.tui.state.key_orders import REPLAYED
from edgefed.tui.state.replay import SPEEDS, speed_in_words
from tests.simulated_runs import events_of, simulate
from tests.tui.driving import drive, notices, press, screen_text, settle
from tests.tui.samples import NOW, FakeClock


def at(seconds: float) -> str:
    return timestamp(NOW + timedelta(seconds=seconds))


def note(seconds: float) -> Event:
    return Event(time=at(seconds), kind="note", fields={"level": "info", "text": f"at {seconds}"})


def scored(seconds: float, number: int) -> Event:
    fields = {"run": "r-1", "round": number, "accuracy": number / 10, "seconds": 10.0}
    return Event(time=at(seconds), kind="scored", fields=fields)


RUN = Event(time=at(0), kind="run", fields={"run": "r-1", "status": "running", "rounds": 3})
EVENTS = [RUN, note(4), scored(10, 1), note(12), scored(20, 2), note(30), scored(32, 3), note(34)]
"""The ends of the rounds are after 3, 5 and 7 of 8 events."""


class Player:
    """A replay that goes on when a test says so."""

    def __init__(
        self,
        path: Path,
        events: list[Event] | None = None,
        speed: float = 1.0,
        first_round: int = 1,
    ) -> None:
        if events is not None:
            path.write_text("".join(f"{event.line()}\n" for event in events))
        self.clock = FakeClock()
        self.got: list[FeedUpdate] = []
        recording = Recording.read(path)
        first = recording.start_of_round(first_round)
        self.feed = ReplayFeed(recording, self.clock, speed=speed, first=first, play=False)
        self.app = Dashboard(
            self.feed,
            None,
            self.clock,
            zone=timezone.utc,
            closing=ENDS_REPLAY,
            starting="The recording has not come to a run yet.",
            replay=self.feed,
        )

    def wait(self, seconds: float) -> int:
        """Let time pass, and return how many events there are then."""
        self.clock.seconds += seconds
        self.feed.deliver()
        return self.feed.position().done

    def move(self, *moves: str) -> int:
        """Make moves, and return how many events there are then."""
        for each in moves:
            self.feed.move(each)  # type: ignore[arg-type]
        self.feed.deliver()
        return self.feed.position().done


@pytest.fixture
def player(tmp_path: Path) -> Player:
    made = Player(tmp_path / "events.jsonl", EVENTS)
    made.feed.start(made.got.append)
    return made


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("state")
    return events_of(state, simulate(state))


def test_events_come_when_they_came(player: Player) -> None:
    assert [player.wait(seconds) for seconds in (0, 3.9, 0.2, 5.8, 0.2, 1, 1)] == [
        1, 1, 2, 2, 3, 3, 4
    ]  # fmt: skip
    assert [len(update.snapshot.lines) for update in player.got if update.snapshot] == [1, 2, 3, 4]


@pytest.mark.parametrize(("speed", "seen"), [(1.0, 1), (2.0, 2), (8.0, 5), (64.0, 8)])
def test_a_speed_is_how_many_seconds_pass_in_one(tmp_path: Path, speed: float, seen: int) -> None:
    player = Player(tmp_path / "events.jsonl", EVENTS, speed=speed)
    player.feed.start(player.got.append)
    assert player.wait(2.9) == seen


def test_a_change_of_speed_keeps_the_place(player: Player) -> None:
    assert player.wait(9) == 2
    player.move("faster", "faster")
    assert player.wait(0.2) == 2
    assert player.wait(0.1) == 3  # 10.2 s
    player.move("slower", "slower")
    assert player.wait(1.6) == 3
    assert player.wait(0.3) == 4  # 12.1 s


def test_speeds_end_at_both_ends(player: Player) -> None:
    seen = [player.feed.position().speed]
    for _ in range(9):
        player.move("faster")
        seen.append(player.feed.position().speed)
    assert tuple(dict.fromkeys(seen)) == SPEEDS
    for _ in range(9):
        player.move("slower")
    assert player.feed.position().speed == 1.0
    assert [speed_in_words(each) for each in SPEEDS] == [
        "1x", "2x", "4x", "8x", "16x", "32x", "64x", "max"
    ]  # fmt: skip


def test_without_waiting_each_look_folds_a_chunk(tmp_path: Path) -> None:
    events = [RUN, *(note(number) for number in range(CHUNK * 2))]
    player = Player(tmp_path / "events.jsonl", events, speed=math.inf)
    player.feed.start(player.got.append)
    assert [player.wait(0) for _ in range(3)] == [2 * CHUNK, 2 * CHUNK + 1, 2 * CHUNK + 1]


def test_a_pause_stands_still_and_goes_on_from_there(player: Player) -> None:
    player.wait(3)
    player.move("play")
    assert not player.feed.position().playing
    assert player.wait(100) == 1
    assert player.feed.position().time == NOW + timedelta(seconds=3)
    player.move("play")
    assert player.wait(0.9) == 1
    assert player.wait(0.2) == 2


def test_steps_go_to_the_ends_of_rounds_and_pause(player: Player) -> None:
    assert [player.move("next_round") for _ in range(5)] == [3, 5, 7, 8, 8]
    assert [player.move("previous_round") for _ in range(5)] == [7, 5, 3, 1, 1]
    assert not player.feed.position().playing
    assert player.wait(1000) == 1
    assert player.move("next_round", "next_round") == 5


def test_steps_go_to_the_next_event_and_the_one_before(player: Player) -> None:
    assert player.move("previous_event") == 1
    assert [player.move("next_event") for _ in range(8)] == [2, 3, 4, 5, 6, 7, 8, 8]
    assert player.move("previous_event", "previous_event") == 6


def test_after_a_step_it_plays_on_from_there(player: Player) -> None:
    player.move("next_round", "play")
    assert player.wait(1.9) == 3
    assert player.wait(0.2) == 4


def test_jumps_lead_to_both_ends(player: Player) -> None:
    assert player.move("end") == 8
    assert player.feed.position().over
    assert player.move("start") == 1
    assert not player.feed.position().over


@pytest.mark.parametrize(("number", "done"), [(1, 1), (2, 3), (3, 5)])
def test_it_begins_with_a_round_and_plays_on_from_there(
    tmp_path: Path, number: int, done: int
) -> None:
    player = Player(tmp_path / "events.jsonl", EVENTS, first_round=number)
    player.feed.start(player.got.append)
    assert player.feed.position().done == done
    assert player.feed.position().playing
    (first,) = player.got
    assert first.snapshot is not None
    assert first.snapshot.finished_rounds == number - 1
    assert player.wait(12) == {1: 4, 2: 5, 3: 7}[number]
    assert player.move("start") == 1


def test_a_thread_begins_with_a_round(tmp_path: Path) -> None:
    path, got = tmp_path / "events.jsonl", list[FeedUpdate]()
    path.write_text("".join(f"{event.line()}\n" for event in EVENTS))
    recording = Recording.read(path)
    feed = ReplayFeed(recording, SystemClock(), first=recording.start_of_round(3))
    feed.start(got.append)
    wait_until(lambda: bool(got))
    feed.stop()
    assert got[0].snapshot is not None
    assert got[0].snapshot.finished_rounds == 2


@pytest.mark.parametrize("number", [4, 99])
def test_a_round_that_is_not_recorded_is_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(UsageError, match=f"no finished round {number}") as refused:
        Player(tmp_path / "events.jsonl", EVENTS, first_round=number)
    assert (refused.value.code, refused.value.hint) == ("recording.round", "the last one is 3")


def test_the_start_is_played_on(player: Player) -> None:
    player.wait(21)
    assert player.move("start") == 1
    assert player.feed.position().playing
    assert player.wait(4.1) == 2


def test_going_back_shows_the_state_of_then(player: Player) -> None:
    player.move("next_round")
    before = player.got[-1].snapshot
    player.move("end")
    player.move("previous_round", "previous_round", "previous_round")
    assert player.got[-1].snapshot == before


def test_at_its_end_it_stays_and_plays_again(player: Player) -> None:
    assert player.wait(1000) == 8
    count = len(player.got)
    assert player.wait(1000) == 8
    assert len(player.got) == count
    position = player.feed.position()
    assert (position.over, position.playing) == (True, False)
    assert position.time == NOW + timedelta(seconds=34)
    assert player.move("play") == 1
    assert player.wait(4.1) == 2


def test_the_time_of_the_recording_never_passes_the_next_event(tmp_path: Path) -> None:
    player = Player(tmp_path / "events.jsonl", [RUN, note(3600), note(7200)])
    player.feed.start(player.got.append)
    player.wait(59)
    assert player.feed.position().time == NOW + timedelta(seconds=59)
    assert player.wait(2) == 2  # the hour is shortened to a minute
    assert player.feed.position().time == NOW + timedelta(seconds=3601)


def test_the_last_state_of_a_real_run_is_that_of_its_file(real: Path) -> None:
    player = Player(real)
    player.feed.start(player.got.append)
    player.move("end")
    assert player.got[-1] == last_of_events(real)


def test_a_thread_plays_a_real_run_to_its_end(real: Path) -> None:
    got, ended = list[FeedUpdate](), threading.Event()
    feed = ReplayFeed(Recording.read(real), SystemClock(), speed=64.0)

    def listener(update: FeedUpdate) -> None:
        got.append(update)
        if update == last:
            ended.set()

    last = last_of_events(real)
    feed.start(listener)
    assert ended.wait(30)
    feed.move("previous_round")
    wait_until(lambda: got[-1] != last)
    feed.stop()
    count = len(got)
    feed.move("end")
    feed.deliver()
    assert len(got) == count
    assert not any(thread.name == "replay-feed" for thread in threading.enumerate())


def wait_until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_file_that_vanishes_is_told(player: Player, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").unlink()
    player.move("end")
    assert str(tmp_path / "events.jsonl") in player.got[-1].problem
    assert player.feed.position().done == 1


# -- on the screen --------------------------------------------------------------------------------


def header(pilot: Pilot[None]) -> str:
    return screen_text(pilot).splitlines()[0]


async def key(player: Player, pilot: Pilot[None], *keys: str) -> None:
    """Press keys and let the feed follow."""
    await press(pilot, *keys)
    player.feed.deliver()
    await settle(pilot)


def test_the_header_says_replay_speed_position_and_time(tmp_path: Path) -> None:
    player = Player(tmp_path / "events.jsonl", EVENTS)

    async def scenario(pilot: Pilot[None]) -> None:
        assert "▶ REPLAY 1x  event 1 of 8" in header(pilot)
        assert "14:02:31" in header(pilot)
        assert "broker" not in header(pilot)
        await key(player, pilot, "full_stop")
        assert "REPLAY paused 1x  event 3 of 8" in header(pilot)
        assert "14:02:41" in header(pilot)
        await key(player, pilot, "comma", "plus", "plus")
        assert "REPLAY paused 4x  event 1 of 8" in header(pilot)
        await key(player, pilot, "p", "minus")
        assert "▶ REPLAY 2x" in header(pilot)
        await key(player, pilot, "right_parenthesis")
        assert "REPLAY over 2x  event 8 of 8" in header(pilot)
        assert "The recording is over." in screen_text(pilot)
        await key(player, pilot, "less_than_sign")
        assert "event 7 of 8" in header(pilot)
        assert "The recording is over." not in screen_text(pilot)
        await key(player, pilot, "greater_than_sign")
        assert "event 8 of 8" in header(pilot)
        await key(player, pilot, "left_parenthesis")
        assert "event 1 of 8" in header(pilot)

    drive(player.app, scenario)


def test_ages_are_those_of_the_recording_and_stand_still_in_a_pause(tmp_path: Path) -> None:
    player = Player(tmp_path / "events.jsonl", EVENTS)

    async def scenario(pilot: Pilot[None]) -> None:
        watch = player.app._watch_of_feed
        player.clock.seconds += 3
        assert watch.shown().now == NOW + timedelta(seconds=3)
        await key(player, pilot, "p")
        player.clock.seconds += 50
        assert watch.shown().now == watch.shown().clock == NOW + timedelta(seconds=3)

    drive(player.app, scenario)


def test_a_replay_takes_no_orders_and_offers_none(tmp_path: Path) -> None:
    player = Player(tmp_path / "events.jsonl", EVENTS)

    async def scenario(pilot: Pilot[None]) -> None:
        footer = screen_text(pilot).splitlines()[-1]
        assert "p Pause" in footer
        assert ". Round" in footer
        assert "Abort" not in footer
        await key(player, pilot, "p")
        assert "p Play" in screen_text(pilot).splitlines()[-1]
        await press(pilot, "A")
        await press(pilot, "n", "2", "x")
        assert notices(pilot) == [("", REPLAYED)] * 3
        words = [each.title for each in pilot.app.get_system_commands(pilot.app.screen)]
        assert "Faster" in words
        assert "Abort…" not in words

    drive(player.app, scenario)


def test_the_help_page_of_a_replay_has_its_keys_and_none_of_the_run(tmp_path: Path) -> None:
    player = Player(tmp_path / "events.jsonl", EVENTS)

    async def scenario(pilot: Pilot[None]) -> None:
        await press(pilot, "question_mark")
        page = str(pilot.app.screen.query_one("#help-keys", Static).content)
        assert "Replay\n  p       play" in page
        assert "abort" not in page
        notes = str(pilot.app.screen.query_one("#help-notes", Static).content)
        assert ENDS_REPLAY.note in notes

    drive(player.app, scenario)


def test_what_is_left_out_is_told_on_the_screen(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = [event.line() for event in EVENTS]
    odd = ['{"time": "2026-01-01T00:00:00Z", "kind": "\\u001b[31mwarp"}', "nonsense"]
    path.write_text("\n".join([*lines[:3], *odd, *lines[3:]]) + "\n{")
    player = Player(path)

    async def scenario(pilot: Pilot[None]) -> None:
        told = screen_text(pilot).splitlines()[1]
        assert "Left out: 1 event of unknown kinds (?[31mwarp), 1 broken line (line 5)" in told
        assert "the last line, which is incomplete" in told
        await key(player, pilot, "right_parenthesis")
        assert "event 8 of 8" in header(pilot)

    drive(player.app, scenario)


def test_a_key_asks_for_a_round_and_goes_to_its_start(real: Path) -> None:
    player = Player(real)

    async def scenario(pilot: Pilot[None]) -> None:
        assert "# Round…" in screen_text(pilot).splitlines()[-1]
        await key(player, pilot, "p")
        for number in (3, 1, 2):
            await key(player, pilot, "number_sign", str(number), "enter")
            assert f" {number}/3 " in header(pilot)
            assert not player.feed.position().playing
        await key(player, pilot, "number_sign", "4", "enter")
        above, line = screen_text(pilot).splitlines()[-2:]
        assert above.strip() == "no finished round 4; this recording has 1 to 3"
        assert line.strip() == "Go to round (1 to 3): 4"
        await key(player, pilot, "escape", "p", "number_sign", "2", "enter")
        assert not player.feed.position().playing
        assert " 2/3 " in header(pilot)

    drive(player.app, scenario, (80, 24))


def test_the_screens_of_a_real_run_open_at_every_round(real: Path) -> None:
    player = Player(real)

    async def scenario(pilot: Pilot[None]) -> None:
        for number in (1, 2, 3):
            await key(player, pilot, "full_stop")
            for screen in ("2", "3", "7", "1"):
                await press(pilot, screen)
            assert f"round {number}/3" in header(pilot)

    drive(player.app, scenario)
