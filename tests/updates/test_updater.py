"""The updater on a board: a good version stays, any bad one is switched back with its state."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from device_agent.updater.disk import write_json
from tests.updates.boards import LIMITS, Board, agent_files
from tests.updates.wheels import Publisher

REASONS = {
    "exits": "it ended with exit code 1: cannot start",
    "unconnected": "did not connect",
    "probe": "the probe task failed",
    "damages": "its store is damaged",
    "hangs": "it did not start within",
}
BAD = tuple(REASONS)


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Publisher:
    """Releases whose names say what is wrong with them."""
    made = Publisher(tmp_path_factory.mktemp("publisher"))
    for mode in ("good", *BAD):
        made.publish(mode, agent_files(mode))
    return made


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, publisher: Publisher) -> Path:
    """A board with its first version."""
    folder = tmp_path_factory.mktemp("first")
    board = Board(folder, publisher)
    board.install_old()
    board.close()
    return folder / "updates"


@pytest.fixture
def board(tmp_path: Path, publisher: Publisher, first: Path) -> Iterator[Board]:
    made = Board(tmp_path, publisher)
    shutil.copytree(first, made.home, symlinks=True, dirs_exist_ok=True)
    yield made
    made.close()


def test_a_good_version_is_installed_and_stays(board: Board) -> None:
    board.offer("good")
    board.start()
    state = board.wait("has passed its trial")
    assert (state["current"], state["previous"], state["phase"]) == ("good", "old", "idle")
    assert (board.home / "current").resolve().name == "good"
    assert board.started()[-1] == "good"


def test_each_bad_version_is_switched_back_with_the_state_as_it_was(board: Board) -> None:
    for mode in BAD:
        if mode in (BAD[0], "hangs"):
            board.stop()
            board.start(limits=replace(LIMITS, start=0.5) if mode == "hangs" else LIMITS)
        board.prepare(mode, mode)
        board.offer(mode)
        state = board.wait(f"release {mode} failed its trial, and old is back", REASONS[mode])
        assert (state["current"], state["number"]) == ("old", 1)
        assert (board.folder / "agent.db").read_text() == "old tables"
        assert (board.folder / "blobs" / "state").read_text() == "private state"
        assert (board.folder / "models" / "current").read_text() == "a model"
        board.until(lambda _: board.started()[-1:] == ["old"])
        board.wait_without(mode)


def test_a_broker_that_is_away_is_no_failure(board: Board) -> None:
    board.prepare("good", "good")
    board.set_broker(False)
    board.offer("good", during_run=True)
    board.start(limits=replace(LIMITS, connect=0.2))
    board.until(lambda state: state.get("trials") == 1 and board.started()[-1:] == ["good"])
    time.sleep(1.0)
    assert board.state["phase"] == "trial"
    (board.home / "broker").touch()
    assert board.wait("has passed its trial")["current"] == "good"


def test_the_owner_decides(board: Board) -> None:
    board.prepare("good", "good")
    board.offer("good", identity="first")
    board.start(mode="off")
    board.wait("switched updates off")
    board.stop()
    board.offer("good", identity="second")
    board.start(mode="ask", hours="00:00-00:00")
    assert board.until(lambda state: state["phase"] == "waiting")["needs"] == {}
    write_json(board.home / "offer.json", {"id": "third", "release": "good", "withdraw": True})
    assert board.wait("release good was withdrawn")["current"] == "old"
    board.offer("good", identity="fourth")
    board.until(lambda state: state["phase"] == "waiting")
    (board.home / "order.json").write_text('{"order": "approve"}')
    board.until(lambda state: "maintenance hours" in state["reason"])
    assert board.started()[-1] == "old"
    board.stop()
    board.start(mode="ask")
    board.wait("has passed its trial")
    (board.home / "order.json").write_text('{"order": "rollback"}')
    state = board.wait("release old has passed its trial: the owner went back from good")
    assert (state["current"], state["previous"], state["number"]) == ("old", "good", 1)


def test_a_release_with_a_lower_number_is_refused(board: Board) -> None:
    (board.home / "state.json").write_text('{"current": "old", "number": 2}')
    board.offer("good")
    board.start()
    assert board.wait("its number 1 is lower than 2")["current"] == "old"


def test_maintenance_hours(board: Board) -> None:
    def allowed(hours: str, clock: str) -> bool:
        return board.settings(hours=hours).allows_change(time.strptime(clock, "%H:%M"))

    assert [allowed("02:00-05:00", at) for at in ("01:59", "02:00", "05:00")] == [
        False,
        True,
        False,
    ]
    assert [allowed("22:00-04:00", at) for at in ("21:59", "22:00", "03:59", "04:00")] == [
        False,
        True,
        True,
        False,
    ]
