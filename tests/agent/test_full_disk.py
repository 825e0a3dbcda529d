"""A real agent on a disk that is too small, or temporarily full, resumes without help."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker
from edgefed.config.recipes.recipe import ModelSection
from edgefed.config.values.address import Address
from edgefed.learn.modeling.model_building import build
from edgefed.wire.messages import BlobRef, CoordinatorState, Task
from edgefed.wire.tensors import pack
from tests.agent.agent_harness import (
    CLASSES,
    FLEET,
    SAMPLES,
    SHAPE,
    Stage,
    agent_words,
    write_data,
)
from tests.coordinator.full_disk import NO_DISK, fill
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram
from tests.transport.listening import wait_until

pytestmark = [
    pytest.mark.mosquitto,
    pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare here"),
]

NAME = "board-1"
MODEL = {"name": "mlp", "hidden": [65_536]}
"""5 MB of weights: two of them do not fit on the disk, which has 12 MB."""


class Board:
    """An agent whose state is on a disk in memory that only it can see."""

    def __init__(self, stage: Stage, process: ForkedProgram, disk: Path) -> None:
        self.stage, self.pid = stage, process.pid
        self.disk = Path(f"/proc/{process.pid}/root{disk}")
        self._inside = f"nsenter --target {process.pid} --user --preserve-credentials --mount"
        self._place, self._log = disk, disk.with_name("agent.log")
        self.data = disk.with_name("data.npz")

    def run(self, words: str) -> None:
        """Run a command that sees the agent's disk at its place."""
        subprocess.run(f"{self._inside} {words}".split(), check=True)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Have the disk refuse to be written."""
        self.run(f"mount --bind {self._place} {self._place}")
        self.run(f"mount -o remount,bind,ro {self._place}")
        try:
            yield
        finally:
            self.run(f"umount --lazy {self._place}")

    @contextmanager
    def child_waits(self) -> Iterator[None]:
        """Keep the process that trains from going on."""
        found: list[psutil.Process] = []

        def begun() -> bool:
            found[:] = psutil.Process(self.pid).children(recursive=True)
            return bool(found)

        wait_until(begun, "the process that trains")
        child = found[-1]
        child.suspend()
        try:
            yield
        finally:
            child.resume()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def task(self, number: int, **changes: Any) -> Task:
        """Return a task with weights of its own."""
        model = build(ModelSection.model_validate(MODEL), SHAPE, CLASSES, number)
        weights = pack(model.weights())
        ref = BlobRef(digest=self.stage.hold(weights), size=len(weights))
        fields = {"model": MODEL, "blobs": {"weights": ref}, "error_feedback": False, **changes}
        return self.stage.task(f"r-1-{number}", index=number, **fields)

    def over(self, through: int) -> None:
        """Say that exchanges are over."""
        state = CoordinatorState(
            session="feedfacefeedface",
            owner="me",
            status="online",
            run="r-1",
            closed_through=through,
        )
        self.stage.send(self.stage.topics.coordinator(), state)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """One agent for several tests, the first of which needs an empty disk."""
    folder = tmp_path_factory.mktemp("board")
    address = Address(LOOPBACK, free_port())
    with MosquittoBroker(address, folder / "mosquitto") as broker, board_on(broker, folder) as made:
        yield made


@contextmanager
def board_on(broker: MosquittoBroker, tmp_path: Path) -> Iterator[Board]:
    disk = tmp_path / "disk"
    disk.mkdir()
    data = write_data(tmp_path / "data.npz")
    words = agent_words(broker.address, disk, data, NAME)[1:]
    program = ["tests.agent.agent_on_own_disk", str(disk), *words]
    process = ForkedProgram(program, clean_environment(), tmp_path / "agent.log")
    stage = Stage(broker.address, NAME)
    try:
        stage.wait(lambda: bool(stage.births) or process.poll() is not None, "its birth")
        if process.poll() == NO_DISK:
            pytest.skip("a process may not mount a disk of its own here")
        stage.wait_for_state("idle")
        yield Board(stage, process, disk)
    finally:
        stage.close()
        process.kill()
        process.wait()


def test_an_answer_that_does_not_fit_waits_for_room_which_is_made_for_what_comes_next(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    with board_on(mosquitto, tmp_path) as board:
        an_answer_waits_and_is_not_trained_again(board)
        it_makes_room_for_what_comes_next(board)


def an_answer_waits_and_is_not_trained_again(board: Board) -> None:
    stage = board.stage
    task = board.task(0, training={"epochs": 5, "batch_size": 1})
    stage.ask(task)
    stage.wait_for_state("train")
    with board.child_waits():
        fill(board.disk / "ballast")
    paused = stage.wait_for_state("paused")
    assert "disk is full" in paused.reason
    assert paused.exchange == task.exchange
    stage.forget()
    stage.ask(task)
    stage.wait(lambda: stage.states, "an answer to the same task")
    (board.disk / "ballast").unlink()
    reply = stage.reply(task.exchange)
    assert reply.status == "ok"
    assert stage.pull(reply)["delta"]
    stage.wait_for_state("upload")
    assert set(stage.seen()) == {"paused", "upload"}, "nothing is trained twice"
    stage.receipt(reply)
    board.over(0)


def it_makes_room_for_what_comes_next(board: Board) -> None:
    board.stage.forget()
    for number in range(1, 4):
        board.stage.ask(board.task(number))
        reply = board.stage.reply(f"r-1-{number}")
        assert reply.status == "ok", reply.reason
        assert board.stage.pull(reply)["delta"]
        board.stage.receipt(reply)
        board.over(number)
    assert "failed" not in board.stage.seen()


def test_a_download_that_does_not_fit_goes_on_when_there_is_room(board: Board) -> None:
    board.stage.forget()
    fill(board.disk / "ballast")
    board.stage.ask(board.task(4))
    assert "disk is full" in board.stage.wait_for_state("paused").reason
    (board.disk / "ballast").unlink()
    reply = board.stage.reply("r-1-4")
    assert reply.status == "ok"
    board.stage.receipt(reply)
    board.over(4)
    assert "failed" not in board.stage.seen()


def test_a_disk_that_is_read_only_for_a_while_is_told_and_costs_nothing(board: Board) -> None:
    stage = board.stage
    stage.forget()
    with board.read_only():
        write_data(board.data, samples=SAMPLES + 10)
        stage.wait(lambda: "data have changed" in board.log, "a line about the data")
        stage.ask(board.task(5))
        reason = stage.wait_for_state("paused").reason
        assert reason.endswith("staging: Read-only file system. Waiting for the disk.")
    reply = stage.reply("r-1-5")
    assert reply.samples == SAMPLES * 0.8, "its samples are those of before"
    stage.receipt(reply)
    board.over(5)
    stage.wait(lambda: stage.births[-1].revision == 1, "the new samples")
    assert board.log.count("data have changed and are not used") == 1
    assert "samples.npz: Read-only file system." in board.log


def test_a_folder_moved_away_for_a_while_is_told_and_not_made_anew(board: Board) -> None:
    stage, folder = board.stage, board.disk / "agents" / FLEET / NAME
    stage.forget()
    folder.rename(folder.with_name("moved"))
    reason = stage.wait_for_state("paused").reason
    assert reason.endswith("was moved or deleted while a program uses it. Waiting for the disk.")
    stage.forget()
    stage.wait(lambda: board.log.count("[storage.moved]") == 2, "the second look")
    assert "idle" not in stage.seen()
    folder.with_name("moved").rename(folder)
    stage.wait_for_state("idle")
    stage.forget()
    folder.rename(folder.with_name("moved"))
    stage.ask(board.task(6))
    stage.wait_for_state("paused")
    assert not folder.exists()
    folder.with_name("moved").rename(folder)
    reply = stage.reply("r-1-6")
    assert reply.status == "ok"
    stage.receipt(reply)
    board.over(6)
    with board.child_waits():
        stage.forget()
        stage.ask(board.task(7))
        stage.wait_for_state("train")
        folder.rename(folder.with_name("moved"))
    stage.wait_for_state("paused")
    folder.with_name("moved").rename(folder)
    assert stage.reply("r-1-7").status == "ok"
    assert "failed" not in stage.seen()
