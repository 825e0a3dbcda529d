"""A real agent keeps state and a ledger: applied once, whenever it is killed, and across runs."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker
from device_agent.commands.cli import app
from device_agent.tasks.device_store import read_releases
from device_agent.tasks.release_ledger import LedgerRow
from edgefed.config.values.address import Address
from edgefed.process.clock import moment_of
from edgefed.wire.messages import BlobRef, Reply, Task
from edgefed.wire.tensors import digest
from tests.agent.agent_harness import FLEET, PATIENCE, Stage, agent_words, fork_agent, write_data
from tests.programs.forked_programs import run_module
from tests.support.relaying import HOLD
from tests.support.relaying import installed as relaying_installed
from tests.support.releasing import NAME as ALGORITHM
from tests.support.releasing import installed

pytestmark = pytest.mark.mosquitto

NAME = "board-1"
LONG = {"epochs": 24, "batch_size": 1}
"""Training that lasts long enough to be interrupted."""

LABELS = 1
"""Entries of label counts, which a birth tells."""


class Board:
    """A device with its broker, both of which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = Address(LOOPBACK, free_port())
        self.data = write_data(folder / "data.npz")
        self.broker = self.start_broker()
        self.stage = Stage(self._address, NAME)
        self.start()

    def start_broker(self) -> MosquittoBroker:
        self.broker = MosquittoBroker(self._address, self._folder / "mosquitto")
        return self.broker

    def start(self, *words: str) -> None:
        born = len(self.stage.births)
        state = self._folder / "state"
        self._process = fork_agent(self._address, state, self.data, NAME, *words)
        self.stage.wait(
            lambda: any(each.status == "online" for each in self.stage.births[born:]), "the birth"
        )

    def fail(self) -> str:
        """Start an agent that cannot work, and return what it said."""
        state = self._folder / "state"
        code, _, told = run_module(*agent_words(self._address, state, self.data, NAME))
        assert code
        return told

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

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

    @property
    def state(self) -> Path:
        return self._folder / "state" / "agents" / FLEET / NAME

    def releases(self) -> tuple[LedgerRow, ...]:
        """Return what replies released; a birth's label counts come before all of them."""
        told, *others = read_releases(self.state, NAME)
        assert (told.exchange, told.entry["kind"]) == ("", "labels")
        assert all(each.exchange for each in others)
        return tuple(others)

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
    """Return the releases that the device's state and its ledger counted when the task began."""
    return reply.metrics["before"], reply.metrics["entries"] - LABELS


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


def test_killed_at_any_moment_each_exchange_releases_once(board: Board) -> None:
    chance = random.Random(6)
    for index in range(1, 4):
        board.stage.ask(board.task(index))
        time.sleep(chance.random() * 0.3)
        board.kill()
        board.start()
        done = float(index - 1)
        assert before(board.ask(board.task(index))) == (done, done)
        assert [each.entry["round"] for each in board.releases()] == list(range(1, index + 1))


def test_the_ledger_is_shown_while_the_agent_runs(board: Board) -> None:
    shown = json.loads(board.cli("--json"))
    (told,) = shown["releases"]
    assert (told["id"], told["run"], told["exchange"]) == (1, "", "")
    assert told["entry"]["kind"] == "labels"
    assert shown["totals"]["others"] == {"labels": 1}
    board.ask(board.task(1))
    board.ask(board.task(2))
    _, first, second = json.loads(board.cli("--json"))["releases"]
    assert (first["id"], first["run"], first["exchange"]) == (2, "r-1", "r-1-1")
    assert (second["id"], second["exchange"], second["entry"]["round"]) == (3, "r-1-2", 2)
    assert 0 <= (moment_of(second["time"]) - moment_of(first["time"])).total_seconds() < PATIENCE
    head, labels, *rows = board.cli().partition("\n\n")[0].splitlines()
    assert head.split()[:5] == ["ID", "TIME", "RUN", "ROUND", "KIND"]
    assert labels.split()[2:9] == ["-", "0", "labels", "32", "0", "null", "none"]
    assert rows[1].split()[:5] == ["3", second["time"], "r-1", "2", "-"]
    assert json.loads(rows[1].split(None, 11)[11])["noise"] == second["entry"]["noise"]


def test_the_label_counts_of_the_same_samples_are_noted_once(board: Board) -> None:
    board.kill()
    board.start()
    assert board.releases() == ()
    write_data(board.data, labels=2)
    board.kill()
    board.start()
    both = [each["entry"] for each in json.loads(board.cli("--json"))["releases"]]
    assert [entry["labels"] for entry in both] == [3, 2]
    assert [entry["data"] for entry in both] == [
        board.stage.births[0].data,
        board.stage.births[-1].data,
    ]


def test_a_device_that_tells_no_label_counts_notes_none(board: Board, tmp_path: Path) -> None:
    board.kill()
    write_data(board.data, labels=2)
    settings = tmp_path / "settings.toml"
    settings.write_text("share_labels = false\n")
    board.start("--config", str(settings))
    assert board.stage.wait_online().labels == ()
    assert board.releases() == (), "only the first start told label counts"


def test_a_birth_that_cannot_be_noted_is_not_published(board: Board) -> None:
    board.kill()
    board.stage.wait(lambda: board.stage.births[-1].status == "lost", "the will")
    with closing(sqlite3.connect(board.state / "agent.db")) as database:
        database.execute("delete from ledger")
        database.commit()
    told = board.fail()
    assert "[storage.damaged]" in told
    assert board.stage.births[-1].status == "lost"


class Sender:
    """A board that is asked for bytes for two other devices."""

    def __init__(self, board: Board, hold: Path) -> None:
        self.board = board
        self._hold = hold

    def hold(self) -> None:
        """Let answers wait."""
        self._hold.touch()

    def let_go(self) -> None:
        """Let them be made."""
        self._hold.unlink()

    def task(self, seed: int = 1) -> Task:
        to_others = {"receivers": ("one", "two"), "max_relay_bytes": 300_000, "blobs": {}}
        changes: dict[str, Any] = {"question": "pass", "codec": "fp32", "seed": seed, **to_others}
        return self.board.task(1, algorithm="charging", **changes)

    def charged(self) -> list[str]:
        """Return the receivers in the ledger."""
        return [each.entry["receiver"] for each in self.board.releases()]

    def restart(self) -> None:
        self.board.kill()
        self.board.start()
        self.board.stage.forget()

    def pulled(self, reply: Reply) -> dict[str, str]:
        """Fetch what is on its way to others; return its digests."""
        found = {}
        for receiver, sent in reply.relays.items():
            data = self.board.stage._pull(BlobRef(digest=sent.digest, size=sent.size))
            found[receiver] = digest(data)
            assert found[receiver] == sent.digest
        return found


@pytest.fixture
def sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sender]:
    hold = tmp_path / "hold"
    monkeypatch.setenv(HOLD, str(hold))
    with relaying_installed(tmp_path / "site", monkeypatch):
        board = Board(tmp_path)
        try:
            yield Sender(board, hold)
        finally:
            board.close()


def test_nothing_is_charged_before_the_answer_is_made(sender: Sender) -> None:
    sender.hold()
    sender.board.stage.ask(sender.task())
    sender.board.stage.wait_for_state("train")
    sender.restart()
    assert sender.charged() == []
    sender.let_go()
    reply = sender.board.ask(sender.task())
    assert sender.charged() == ["one", "two"]
    assert set(sender.pulled(reply)) == {"one", "two"}


def test_the_charge_is_on_disk_before_the_reply_leaves_and_is_not_repeated(
    sender: Sender,
) -> None:
    board = sender.board
    sender.hold()
    board.stage.ask(sender.task())
    board.stage.wait_for_state("train")
    board.broker.stop()
    sender.let_go()
    board.stage.wait(board.releases, "the commit")
    board.kill()
    assert sender.charged() == ["one", "two"], "charged, and nothing has left"
    board.start_broker()
    board.start()
    board.stage.forget()
    # If the answer were made again, it would wait for this file; its bytes would be others.
    sender.hold()
    first = board.ask(sender.task(seed=9))
    assert sender.charged() == ["one", "two"]
    taken = sender.pulled(first)
    sender.restart()
    second = board.ask(sender.task(seed=10))
    assert sender.pulled(second) == taken
    assert sender.charged() == ["one", "two"]


def test_the_ledger_of_a_device_that_never_ran_is_told(tmp_path: Path) -> None:
    words = ["ledger", "--no-config", "--state", str(tmp_path), "--name", "nobody"]
    told = CliRunner().invoke(app, words)
    assert (told.exit_code, told.stdout) == (5, "")
    assert "No agent named nobody has run" in told.stderr
