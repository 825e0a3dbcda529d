"""A real agent keeps state and a ledger: applied once, whenever it is killed, and across runs."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker
from device_agent.cli import app
from device_agent.device_store import read_releases
from device_agent.ledger import Release
from edgefed.clock import moment_of
from edgefed.config.address import Address
from edgefed.wire.messages import Reply, Task
from tests.agent.agent_harness import FLEET, PATIENCE, Stage, start_agent, write_data
from tests.releasing import NAME as ALGORITHM
from tests.releasing import installed

pytestmark = pytest.mark.mosquitto

NAME = "board-1"
LONG = {"epochs": 60, "batch_size": 1}
"""Training that lasts long enough to be interrupted."""


class Board:
    """A device with its broker, both of which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = Address(LOOPBACK, free_port())
        self._data = write_data(folder / "data.npz")
        self.broker = self.start_broker()
        self.stage = Stage(self._address, NAME)
        self.start()

    def start_broker(self) -> MosquittoBroker:
        self.broker = MosquittoBroker(self._address, self._folder / "mosquitto")
        return self.broker

    def start(self) -> None:
        born = len(self.stage.births)
        self._process = start_agent(self._address, self._folder / "state", self._data, NAME)
        self.stage.wait(
            lambda: any(each.status == "online" for each in self.stage.births[born:]), "the birth"
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        self.kill()
        self.stage.close()
        self.broker.stop()

    def task(self, index: int, run: str = "r-1", **changes: Any) -> Task:
        fields = {"algorithm": ALGORITHM, "run": run, "index": index, "round": index, **changes}
        return self.stage.task(f"{run}-{index}", **fields)

    def ask(self, task: Task) -> Reply:
        self.stage.ask(task)
        reply = self.stage.reply(task.exchange)
        assert reply.status == "ok", reply.reason
        return reply

    def releases(self) -> tuple[Release, ...]:
        return read_releases(self._folder / "state" / "agents" / FLEET / NAME, NAME)

    def cli(self, *words: str) -> str:
        state = ("--no-config", "--fleet", FLEET, "--state", str(self._folder / "state"))
        told = CliRunner().invoke(app, ["ledger", *words, *state, "--name", NAME])
        assert told.exit_code == 0, told.stderr
        return told.stdout


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    with installed(tmp_path / "site", monkeypatch):
        made = Board(tmp_path)
        try:
            yield made
        finally:
            made.close()


def before(reply: Reply) -> tuple[float, float]:
    """Return the releases that the device's state counted when the task began, and its ledger."""
    return reply.metrics["before"], reply.metrics["entries"]


def test_killed_between_commit_and_send_it_released_once(board: Board) -> None:
    stage = board.stage
    stage.ask(board.task(1, training=LONG))
    stage.wait_for_state("train")
    board.broker.stop()  # the reply is written down, and there is nobody to send it to
    stage.wait(board.releases, "the commit")
    (release,) = board.releases()
    board.kill()
    assert "upload" not in stage.seen()
    board.start_broker()
    board.start()
    stage.forget()
    reply = board.ask(board.task(1, seed=99))
    assert before(reply) == (0.0, 0.0)
    assert "train" not in stage.seen(), "answered from disk"
    assert board.ask(board.task(1, seed=98)).blobs == reply.blobs
    assert board.releases() == (release,)
    assert before(board.ask(board.task(1, run="r-2"))) == (1.0, 1.0), "a new run sees the former"
    assert [each.exchange for each in board.releases()] == ["r-1-1", "r-2-1"]


def test_killed_before_the_commit_it_releases_once_when_asked_again(board: Board) -> None:
    board.stage.ask(board.task(1, training={"epochs": 1000, "batch_size": 1}))
    board.stage.wait_for_state("train")
    board.kill()
    assert board.releases() == ()
    board.start()
    assert before(board.ask(board.task(1))) == (0.0, 0.0)
    assert before(board.ask(board.task(2))) == (1.0, 1.0)
    assert [each.exchange for each in board.releases()] == ["r-1-1", "r-1-2"]


def test_killed_at_any_moment_each_exchange_releases_once(board: Board) -> None:
    chance = random.Random(6)
    for index in range(1, 5):
        board.stage.ask(board.task(index))
        time.sleep(chance.random() * 0.3)
        board.kill()
        board.start()
        done = float(index - 1)
        assert before(board.ask(board.task(index))) == (done, done)
        assert [each.entry["round"] for each in board.releases()] == list(range(1, index + 1))


def test_the_ledger_is_shown_while_the_agent_runs(board: Board) -> None:
    assert json.loads(board.cli("--json")) == []
    assert board.cli() == ""
    board.ask(board.task(1))
    board.ask(board.task(2))
    first, second = json.loads(board.cli("--json"))
    assert (first["id"], first["run"], first["exchange"]) == (1, "r-1", "r-1-1")
    assert (second["id"], second["exchange"], second["entry"]["round"]) == (2, "r-1-2", 2)
    assert 0 <= (moment_of(second["time"]) - moment_of(first["time"])).total_seconds() < PATIENCE
    head, *rows = board.cli().splitlines()
    assert head.split() == ["ID", "TIME", "RUN", "EXCHANGE", "ENTRY"]
    assert rows[1].split()[:4] == ["2", second["time"], "r-1", "r-1-2"]
    assert json.loads(rows[1].split(None, 4)[4]) == second["entry"]


def test_the_ledger_of_a_device_that_never_ran_is_told(tmp_path: Path) -> None:
    words = ["ledger", "--no-config", "--state", str(tmp_path), "--name", "nobody"]
    told = CliRunner().invoke(app, words)
    assert (told.exit_code, told.stdout) == (5, "")
    assert "No agent named nobody has run" in told.stderr
