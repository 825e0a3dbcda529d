"""``edgefed ui --replay`` in a terminal, and what it says of files that hold no run."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from edgefed.events.history.recording import LeftOut, Recording
from edgefed.tui.feeds.recorded_feed import last_of_events
from tests.cli.commands import Told, edgefed
from tests.cli.conftest import SmallFleet
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram
from tests.simulated_runs import events_of, simulate

PATIENCE = 60.0
COMMANDS = (["ui", "--replay"], ["run", "replay"])


class Terminal:
    """A dashboard in a terminal of 120 by 36."""

    def __init__(self, process: ForkedProgram, ours: int) -> None:
        self.process = process
        self._ours = ours
        self._said = ""

    def wait_for(self, words: str) -> None:
        """Read until words were drawn since the last call."""
        end = time.monotonic() + PATIENCE
        while words not in self._plain():
            assert time.monotonic() < end, f"{words!r} is not in: {self._plain()}"
            self._read()
        self._said = ""

    def close(self) -> int:
        """Press ctrl+q, and read what is drawn until the program has ended; return how."""
        self.press("\x11")
        end = time.monotonic() + PATIENCE
        while (code := self.process.poll()) is None:
            assert time.monotonic() < end
            self._read()
        return code

    def _read(self) -> None:
        if select.select([self._ours], [], [], 0.2)[0]:
            with suppress(OSError):  # it has ended
                self._said += os.read(self._ours, 1 << 16).decode("utf-8", "replace")

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def _plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?<>=]*[ -/]*[@-~]", "", self._said)


@contextmanager
def shown(state: Path, *words: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
    environment = {
        **clean_environment(),
        "EDGEFED_STATE": str(state),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }
    streams = (theirs, os.dup(theirs), os.dup(theirs))
    process = ForkedProgram(["edgefed.cli.main", *words], environment, streams)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A state folder with a run, and the run's id."""
    state = tmp_path_factory.mktemp("state")
    return state, simulate(state)


def test_a_simulation_is_replayed_to_its_end_without_a_broker(
    simulated: tuple[Path, str],
) -> None:
    state, run = simulated
    count = len(events_of(state, run).read_text().splitlines())
    with shown(state, "run", "replay", run[:6], "--speed", "64") as terminal:
        terminal.wait_for(f"event {count} of {count}")
        terminal.press("7")
        terminal.wait_for("STARTED")
        assert terminal.close() == 0


def test_an_event_file_is_replayed_in_steps(simulated: tuple[Path, str], tmp_path: Path) -> None:
    file = shutil.copy(events_of(*simulated), tmp_path / "mine.jsonl")
    with Path(file).open("a") as log:
        log.write('{"time": "2026-')
    with shown(tmp_path, "ui", "--replay", str(file), "--speed", "max") as terminal:
        terminal.wait_for("Left out: the last line, which is incomplete")
        terminal.press("(p.")
        terminal.wait_for("REPLAY paused max")
        assert terminal.close() == 0


def replay(state: Path, run: str | Path, *words: str) -> Told:
    """Replay without a terminal: whatever is wrong with the file is told first."""
    told = edgefed("ui", "--replay", run, *words, state=state)
    assert told == edgefed("run", "replay", run, *words, state=state)
    return told


def test_a_run_or_file_that_is_missing(tmp_path: Path) -> None:
    replay(tmp_path, "r-9").failed(5, "run.unknown", "r-9", "edgefed run list --local")
    replay(tmp_path, "none.jsonl").failed(5, "recording.missing", "none.jsonl")
    replay(tmp_path, tmp_path).failed(5, "recording.missing", str(tmp_path / "events.jsonl"))
    replay(tmp_path, "/dev/null").failed(5, "recording.missing", "/dev/null")
    edgefed("run", "replay", state=tmp_path).failed(5, "run.unknown", "No run in")
    replay(tmp_path, "n" * 300).failed(5, "run.unknown")
    replay(tmp_path, f"./{'n' * 300}").failed(5, "recording.missing")
    replay(tmp_path, "~nobody-has-this-name/run").failed(5, "recording.missing", "~nobody")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events.jsonl")
    replay(tmp_path, tmp_path).failed(5, "recording.missing", "events.jsonl")


def test_a_file_without_events(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("")
    replay(tmp_path, file).failed(1, "recording.empty", str(file))
    file.write_text("[model]\nname = 1\n")
    replay(tmp_path, file).failed(1, "events.invalid", "2 broken lines (the first is line 1)")
    file.write_text('{"time": "2026-01-01T00:00:00Z", "kind": "warp"}\n')
    replay(tmp_path, file).failed(1, "events.invalid", "1 event of unknown kinds (warp)")
    file.write_text(json.dumps({"time": "2026-01-01T00:00:00Z", "kind": "\x1b[2Jw" + "x" * 999}))
    with file.open("a") as more:
        more.write("\n")
    told = replay(tmp_path, file)
    told.failed(1, "events.invalid", "unknown kinds (?[2Jwx")
    assert "\x1b" not in told.err and len(told.err) < 500
    file.write_bytes(os.urandom(5000))
    replay(tmp_path, file).failed(1, "events.invalid", "broken")


def test_a_run_is_found_by_id_folder_and_file(simulated: tuple[Path, str]) -> None:
    state, run = simulated
    path = events_of(state, run)
    for named in (run, run[:4], path, path.parent):
        replay(state, named).failed(2, "ui.terminal")
    edgefed("run", "replay", state=state).failed(2, "ui.terminal")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(("named", "number"), [("latest", 1), ("tiny", 3)])
def test_the_newest_run_or_one_of_a_name_is_replayed_from_a_round(
    words: list[str],
    named: str,
    number: int,
    simulated: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[tuple[Path, int]] = []

    def show(recording: Recording, clock: object, *, first: int, **others: object) -> None:
        shown.append((recording.path, first))

    monkeypatch.setattr("edgefed.cli.programs.show_dashboard.show_recording", show)
    monkeypatch.setattr("edgefed.cli.common.terminal.require_terminal", lambda text: None)
    state, path = simulated[0], events_of(*simulated)
    assert edgefed(*words, named, "--round", str(number), state=state).code == 0
    ends = Recording.read(path).round_ends
    assert shown == [(path, {1: 0, 3: ends[1] + 1}[number])]
    edgefed(*words, named, "--round", "9", state=state).failed(2, "recording.round", "9")


def test_a_speed_and_a_round_are_for_a_replay(tmp_path: Path) -> None:
    edgefed("ui", "--round", "2").failed(2, "usage", "--replay")
    edgefed("ui", "--speed", "4").failed(2, "usage", "--replay")
    told = edgefed("ui", "--replay", "r-1", "--speed", "3", state=tmp_path)
    assert told.code == 2
    assert "Invalid value for '--speed': '3' is not one of '1', " in told.err


@pytest.mark.mosquitto
def test_nothing_of_a_coordinators_event_file_is_left_out(fleet: SmallFleet) -> None:
    run = fleet.begin("--rounds", "2")
    folder = Path(fleet.wait_for(run, "finished")["folder"])
    recording = Recording.read(folder / "events.jsonl")
    assert recording.left_out == LeftOut()
    shown = last_of_events(recording.path).snapshot
    assert shown is not None
    assert shown.run is not None
    assert (shown.run.run, shown.run.status, len(shown.rounds)) == (run, "finished", 2)
