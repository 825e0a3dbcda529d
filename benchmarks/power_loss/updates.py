"""Kills of the updater of a board during an update, an update that fails, and a roll-back."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.power_loss.kills import Outcome, cut_power, seconds_until
from device_agent.updater.disk import read_json
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram
from tests.updates.boards import Board, agent_files
from tests.updates.wheels import Publisher


@dataclass(frozen=True)
class Change:
    """A change of version.

    Attributes:
        release: that is offered; empty for a roll-back by the owner.
        before, after: the version that runs.
    """

    release: str
    before: str
    after: str


CHANGES = {
    "update": Change("good", "old", "good"),
    "failing update": Change("damages", "old", "old"),
    "roll-back": Change("", "good", "old"),
}
FILES = {"agent.db": "old tables", "blobs/state": "private state", "models/current": "a model"}


class Boards:
    """Boards that are to change their version, made from one with two versions.

    Args:
        folder: a new one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        folder.mkdir()
        self._publisher = Publisher(folder)
        for mode in ("good", "damages"):
            self._publisher.publish(mode, agent_files(mode))
        self._first = Board(folder / "first", self._publisher)
        self._first.install_old()
        self._first.close()

    def make(self, change: Change) -> Board:
        """Return a board that is about to begin a change."""
        self._count += 1
        board = Board(self._folder / str(self._count), self._publisher)
        shutil.copytree(self._first.home, board.home, symlinks=True, dirs_exist_ok=True)
        if change.release:
            board.offer(change.release)
        else:
            board.prepare("good", "good")
            state = {"current": "good", "previous": "old", "number": 1}
            (board.home / "state.json").write_text(json.dumps(state))
            (board.home / "order.json").write_text('{"order": "rollback"}')
        return board


def kills_in_updates(folder: Path, points: int, rng: random.Random, outcome: Outcome) -> None:
    """Kill the updater and all that it started, at moments of each change in turn."""
    boards = Boards(folder)
    spans: dict[str, float] = {}
    for name, change in CHANGES.items():
        board = boards.make(change)
        updater = _start(board)
        spans[name] = seconds_until(lambda board=board: _is_over(board))  # type: ignore[misc]
        seconds_until(lambda board=board: _runs(board))  # type: ignore[misc]
        cut_power(updater)
        _check(board, change, outcome)
        board.close()
    for number in range(points):
        name = list(CHANGES)[number % len(CHANGES)]
        board = boards.make(CHANGES[name])
        with outcome.collecting():
            updater = _start(board)
            time.sleep(rng.uniform(0, spans[name]))
            cut_power(updater)
            outcome.add(not _is_over(board))
            link = board.home / "current"
            whole = (link / "complete").is_file() or not link.is_symlink()
            outcome.check(whole, f"{name}: {link} leads to no complete version")
            updater = _start(board)
            seconds_until(lambda board=board: _is_over(board) and _runs(board))  # type: ignore[misc]
            cut_power(updater)
            _check(board, CHANGES[name], outcome)
        cut_power(updater)
        board.close()
        shutil.rmtree(board.home.parent)


def _start(board: Board) -> ForkedProgram:
    words = ["device_agent.updater", json.dumps(asdict(board.settings()), default=str)]
    return ForkedProgram(words, clean_environment(), board.home / "updater.log")


def _is_over(board: Board) -> bool:
    """Whether the version was judged."""
    return board.state.get("phase") == "idle" and "trial" in str(board.state.get("reason"))


def _runs(board: Board) -> bool:
    """Whether an agent of the current version is at work."""
    signs: dict[str, Any] = read_json(board.home / "agent.json")
    alive = "pid" in signs and Path("/proc", str(signs["pid"])).exists()
    return alive and board.started()[-1:] == [board.state["current"]]


def _check(board: Board, change: Change, outcome: Outcome) -> None:
    """Check that the right version runs beside the state from before, and nothing is left over."""
    found = board.state["current"]
    outcome.check(found == change.after, f"{found} runs instead of {change.after}")
    slot = os.path.realpath(board.home / "current")
    outcome.check(Path(slot).name == change.after, f"{slot} is started")
    for name, text in FILES.items():
        path = board.folder / name
        same = path.is_file() and path.read_text() == text
        outcome.check(same, f"{path} is not as before")
