"""The updater is killed before its n-th change on the disk, for each n; then it goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from device_agent.updater import __main__, updates
from tests.updates.boards import PATIENCE, Board, agent_files
from tests.updates.wheels import Publisher

CHANGES = ((Path, "replace"), (Path, "symlink_to"), (shutil, "rmtree"), (os, "link"))
"""What changes names on the disk; files are only written beside their names."""


def start(board: Board, kill_at: int = 0, only: str = "") -> BaseProcess:
    """Start an updater; it kills itself before a change, of one name if there is one.

    It is forked from a process that has no threads, and no handlers of signals such as Ray's.
    """
    settings = json.dumps(asdict(board.settings()), default=str)
    process = get_context("forkserver").Process(target=update, args=(settings, kill_at, only))
    process.start()
    return process


def update(settings: str, kill_at: int, only: str) -> None:
    """Run an updater in this process."""
    count = 0

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def at_most(*args: Any, **named: Any) -> Any:
            nonlocal count
            count += only in ("", Path(args[-1]).name)
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*args, **named)

        return at_most

    for owner, name in CHANGES:
        setattr(owner, name, counted(getattr(owner, name)))
    updates.TURN = 0.01
    sys.argv = ["", settings]
    sys.exit(__main__.main())


def ended(updater: BaseProcess, *, stop: bool = False) -> int:
    """Return the exit code of an updater, after SIGTERM if it is to stop.

    Before the updater takes it, whatever runs the tests may have taken it for itself.
    """
    ends = time.monotonic() + PATIENCE
    while updater.is_alive() and time.monotonic() < ends:
        if stop:
            updater.terminate()
        updater.join(1.0)
    assert updater.exitcode is not None, "it has not ended"
    return updater.exitcode


@pytest.mark.parametrize(
    ("mode", "then", "kill_at"), [("damages", "old", 1), ("good", "release", 14)]
)
def test_it_is_killed_before_each_change(
    tmp_path: Path, mode: str, then: str, kill_at: int
) -> None:
    publisher = Publisher(tmp_path)
    publisher.publish("release", agent_files(mode))
    template = Board(tmp_path / "template", publisher)
    template.install_old()
    template.prepare("release", mode)
    template.close()
    phases = set()
    while True:
        board = Board(tmp_path / str(kill_at), publisher)
        shutil.copytree(template.home, board.home, symlinks=True, dirs_exist_ok=True)
        board.offer("release")
        first = start(board, kill_at)
        board.until(partial(over_or_at_rest, first))
        killed = ended(first, stop=first.is_alive()) != 0
        phases.add(board.state.get("phase"))  # read before its end, it may be an earlier one
        second = start(board)
        state = board.until(at_rest)
        assert (state["current"], state["phase"]) == (then, "idle"), kill_at
        ended(second, stop=True)
        assert (board.folder / "agent.db").read_text() == "old tables", kill_at
        assert (board.folder / "blobs" / "state").exists(), kill_at
        assert (board.folder / "models" / "current").exists(), kill_at
        if not killed:
            break
        board.close()
        kill_at += 3  # each point takes a second; a trial and a restoring have five changes
    assert {"trial", "restoring" if mode == "damages" else "idle"} <= phases
    if mode == "good":
        an_order_is_kept_until_its_consequence_is_stored(board)
    board.close()


def an_order_is_kept_until_its_consequence_is_stored(board: Board) -> None:
    order = board.home / "order.json"
    order.write_text('{"order": "rollback"}')
    assert ended(start(board, 1, only="state.json")) == -signal.SIGKILL
    assert not order.exists(), "it was taken"
    updater = start(board)
    try:
        board.until(lambda state: at_rest(state) and state["current"] == "old")
    finally:
        ended(updater, stop=True)


def at_rest(state: dict[str, Any]) -> bool:
    return state.get("phase") == "idle" and "trial" in state.get("reason", "")


def over_or_at_rest(updater: BaseProcess, state: dict[str, Any]) -> bool:
    return not updater.is_alive() or at_rest(state)
