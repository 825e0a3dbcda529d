"""A recording is what of a file are events; a playback folds it to any of them."""

from __future__ import annotations

import json
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path

import pytest

from edgefed.errors import StorageError
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.history import playback as playback_module
from edgefed.events.history import recording as recording_module
from edgefed.events.history.playback import Playback
from edgefed.events.history.recording import LONGEST_GAP, LeftOut, Recording
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.process.clock import timestamp
from edgefed.terminal.progress import tell_progress_to
from tests.simulated_runs import events_of, simulate
from tests.tui.samples import NOW

RUN = {"run": "r-1", "status": "running", "rounds": 3}
SCORED = {"run": "r-1", "round": 1, "accuracy": 0.5, "loss": 1.0}
REPLY = {"round": 1, "device": "d-1", "outcome": "accepted", "accepted": 1}


def event(seconds: float, kind: str, **fields: object) -> str:
    return json.dumps({"time": timestamp(NOW + timedelta(seconds=seconds)), "kind": kind, **fields})


def recorded(folder: Path, *lines: str, end: str = "\n") -> Recording:
    path = folder / "events.jsonl"
    path.write_text("\n".join(lines) + end)
    return Recording.read(path)


GOOD = [
    event(0, "device", device="d-1", state="idle"),
    event(1, "run", **RUN),
    event(4, "scored", **SCORED),
]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    state = tmp_path_factory.mktemp("state")
    return Recording.read(events_of(state, simulate(state)))


def test_nothing_of_a_real_file_is_left_out(real: Recording) -> None:
    lines = real.path.read_text().splitlines()
    assert real.left_out == LeftOut()
    assert [each and each.line() for each in real.events()] == lines
    ends = [json.loads(lines[end - 1]) for end in real.round_ends]
    assert [(each["kind"], each["round"]) for each in ends] == [("scored", n) for n in (1, 2, 3)]


def test_a_playback_is_the_fold_of_all_events_before(real: Recording) -> None:
    builder, playback = SnapshotBuilder(Snapshot(fleet="lab")), Playback(real, "lab")
    for number, each in enumerate(real.events(), 1):
        assert each is not None
        builder.apply(each)
        assert playback.move(number, 1)
        assert playback.snapshot() == builder.snapshot()
    assert playback.refused == 0


def test_a_playback_goes_back_to_every_event(
    real: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playback_module, "LEAST_STRIDE", 7)
    back = Playback(real)
    back.move(len(real), len(real))
    assert len(back._kept) == 1 + len(real) // 7
    for number in range(len(real), -1, -5):
        again = Playback(real)
        again.move(number, len(real))
        assert back.move(number, len(real))
        assert back.snapshot() == again.snapshot()


def test_states_are_kept_for_any_length(real: Recording, tmp_path: Path) -> None:
    lines = real.path.read_text().splitlines()
    long = recorded(tmp_path, *(lines * 1000)[:40_000])
    playback = Playback(long)
    playback.move(2000, 2000)
    assert len(long) == 40_000
    assert sorted(playback._kept) == [0, 625, 1250, 1875]


def test_a_move_folds_no_more_than_it_may(real: Recording) -> None:
    playback = Playback(real)
    assert not playback.move(20, 15)
    assert playback.done == 15
    assert playback.move(20, 15)
    assert playback.done == 20


def test_times_never_fall_and_long_pauses_are_short(tmp_path: Path) -> None:
    times = [0, 2, -3600, -3598, 7200, 7201]
    found = recorded(tmp_path, *(event(t, "note", level="info", text="x") for t in times))
    assert list(found.seconds) == pytest.approx([0, 2, 2, 4, 4 + LONGEST_GAP, 5 + LONGEST_GAP])
    assert [stamp - found.stamps[0] for stamp in found.stamps] == pytest.approx(times)


def test_events_of_unknown_kinds_are_left_out_and_counted(tmp_path: Path) -> None:
    newer = [event(2, "warp", speed=9), event(2, "hologram"), event(3, "warp", speed=8)]
    found = recorded(tmp_path, *GOOD[:2], *newer, GOOD[2])
    assert [each and each.kind for each in found.events()] == ["device", "run", "scored"]
    assert found.left_out.in_words() == "3 events of unknown kinds (warp, hologram)"


def test_unknown_fields_do_not_matter(tmp_path: Path) -> None:
    newer = event(1, "run", **RUN, aura="blue")
    found = recorded(tmp_path, newer, event(2, "exchange", phase="collect", waiting=None, new=[1]))
    assert (len(found), found.left_out) == (2, LeftOut())


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[" * 100_000,
        "[]",
        "{}",
        '{"time": "t", "kind": "note", "level": "info", "text": "x"}',
        '{"time": "0001-01-01T00:00:00Z", "kind": "note", "level": "info", "text": "x"}',
        '{"time": 5, "kind": "note", "level": "info", "text": "x"}',
        '{"time": "2026-01-01T00:00:00Z", "kind": []}',
        event(2, "reply", device="d-1"),
        event(2, "reply", **{**REPLY, "outcome": "teleported"}),
        event(2, "run", run="r-1", status="dreaming"),
        event(2, "run", status="running"),
        event(2, "exchange", phase="levitate"),
        event(2, "exchange", asked="many"),
        event(2, "device", device="d-1", state="flying"),
        event(2, "device", device="d-1", temperature="hot"),
        event(2, "device", state="idle"),
        event(2, "roster", devices=["d-1", "d-2"], samples=[1]),
        event(2, "roster", devices=["d-1"], samples=["many"]),
        event(2, "scored", round="last"),
        event(2, "scored", accuracy=0.5),
        event(2, "confusion", place="moon", counts=[]),
        event(2, "note", level="info"),
    ],
    ids=lambda line: line[:60],
)
def test_a_broken_line_in_the_middle_is_left_out_and_named(line: str, tmp_path: Path) -> None:
    found = recorded(tmp_path, *GOOD[:2], line, GOOD[2])
    assert [each and each.kind for each in found.events()] == ["device", "run", "scored"]
    assert found.left_out.in_words() == "1 broken line (line 3)"


def test_the_first_of_several_broken_lines_is_named(tmp_path: Path) -> None:
    found = recorded(tmp_path, GOOD[0], "x", GOOD[1], "y", GOOD[2])
    assert found.left_out.in_words() == "2 broken lines (the first is line 2)"


def test_a_last_line_cut_by_a_crash_is_left_out(tmp_path: Path) -> None:
    found = recorded(tmp_path, *GOOD, '{"time": "2026-', end="")
    assert len(found) == 3
    assert found.left_out.in_words() == "the last line, which is incomplete"


def test_a_line_without_end_is_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "LONGEST_LINE", 1000)
    found = recorded(tmp_path, GOOD[0], "x" * 2500, GOOD[1])
    assert (len(found), found.left_out) == (2, LeftOut(broken=3, first_broken=2))


def test_an_empty_file_has_no_events(tmp_path: Path) -> None:
    found = recorded(tmp_path, end="")
    assert (len(found), found.left_out.in_words(), list(found.events())) == (0, "", [])


def test_a_file_that_is_missing_or_changes_is_no_crash(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        Recording.read(tmp_path / "none.jsonl")
    found = recorded(tmp_path, *GOOD)
    playback = Playback(found)
    found.path.write_text(GOOD[0] + "\n")
    assert playback.move(3, 3)
    assert (playback.done, playback.refused) == (3, 2)
    assert [view.device for view in playback.snapshot().devices] == ["d-1"]
    found.path.unlink()
    with pytest.raises(StorageError):
        playback.move(1, 1)


def test_reading_a_long_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []

    def read() -> None:
        tell_progress_to(lambda what, done, total: told.append((done, total)))
        recorded(tmp_path, *GOOD)

    copy_context().run(read)
    assert told == []
    monkeypatch.setattr(recording_module, "LONG_FILE", 10)
    copy_context().run(read)
    assert told[-1] == (100, 100)
    assert told == sorted(told)


def test_an_event_that_does_not_fit_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    odd = event(2, "experts", run="r-1", rows="none")
    playback = Playback(recorded(tmp_path, *GOOD[:2], odd, GOOD[2]))
    playback.move(4, 4)
    assert playback.refused == 1
    assert playback.snapshot().rounds[0].accuracy == 0.5
    playback.move(0, 4)
    playback.move(4, 4)
    assert playback.refused == 1
