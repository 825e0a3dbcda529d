"""A training process that dies, hangs or is idle costs a task at most an attempt."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker
from edgefed.config.values.address import Address
from edgefed.wire.messages import CoordinatorState, Reply
from tests.agent.agent_harness import Stage, agent_words, write_data
from tests.processes import clean_environment, wait_until_ended
from tests.programs.forked_programs import ForkedProgram

pytestmark = pytest.mark.mosquitto

NAME = "board"
SETTINGS = {"EDGEFED_TRAINING_IDLE": "0.8", "EDGEFED_TRAINING_SILENCE": "2"}


class Board:
    """An agent, with the processes that it starts to train."""

    def __init__(self, broker: MosquittoBroker, folder: Path) -> None:
        data = write_data(folder / "data.npz")
        words = agent_words(broker.address, folder, data, NAME, "--threads", "1")
        self.log = folder / "agent.log"
        self.agent = ForkedProgram(words, {**clean_environment(), **SETTINGS}, self.log)
        self.stage = Stage(broker.address, NAME)
        self.stage.wait_online()

    def children(self) -> list[psutil.Process]:
        return list(psutil.Process(self.agent.pid).children())

    def child(self, other_than: int = 0) -> psutil.Process:
        """Return the process that trains, as soon as there is one and the task has begun."""

        def others() -> list[psutil.Process]:
            return [child for child in self.children() if child.pid != other_than]

        self.stage.wait(others, "a training process")
        (child,) = others()
        self.stage.wait_for_state("train")
        return child

    def ask(self, exchange: str, **changes: Any) -> None:
        """Have a task trained for about a second; its reply depends on its exchange in nothing."""
        self.stage.forget()
        training = {"epochs": 300, "batch_size": 4}
        fields = {"run": f"r-{exchange}", "training": training, "error_feedback": False}
        self.stage.ask(self.stage.task(exchange, **{**fields, **changes}))

    def digest(self, reply: Reply) -> str:
        assert reply.status == "ok", reply.reason
        self.stage.receipt(reply)
        return reply.blobs["delta"].digest

    def end(self) -> None:
        self.stage.close()
        self.agent.terminate()
        self.agent.wait()


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    folder = tmp_path_factory.mktemp("board")
    with MosquittoBroker(Address(LOOPBACK, free_port()), folder / "mosquitto") as broker:
        board = Board(broker, folder)
        yield board
        board.end()


@pytest.fixture(scope="module")
def undisturbed(board: Board) -> str:
    """The digest of the reply to a task whose process nobody disturbs."""
    board.ask("undisturbed")
    return board.digest(board.stage.reply("undisturbed"))


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGKILL, "signal SIGKILL"), (signal.SIGSTOP, "no sign of life for 2 s")],
)
def test_a_task_is_trained_again_after_its_process_died_or_hung(
    board: Board, undisturbed: str, number: signal.Signals, words: str
) -> None:
    board.ask(number.name)
    child = board.child()
    child.send_signal(number)
    assert board.digest(board.stage.reply(number.name)) == undisturbed
    wait_until_ended([child])
    log = board.log.read_text()
    assert words in log and f"task {number.name} is begun again" in log


def test_a_task_whose_process_dies_twice_has_failed(board: Board) -> None:
    board.ask("twice")
    first = board.child()
    first.kill()
    wait_until_ended([first])
    board.child(other_than=first.pid).kill()
    reply = board.stage.reply("twice")
    assert reply.status == "failed"
    assert "ended 2 times during this task: signal SIGKILL" in reply.reason
    board.ask("after")
    assert board.stage.reply("after").status == "ok"


def test_the_traceback_of_a_failed_task_is_in_the_agents_log(board: Board) -> None:
    board.ask("bare", codec="zip")
    assert board.stage.reply("bare").status == "failed"
    board.stage.wait(lambda: "task bare failed: " in board.log.read_text(), "the warning")
    assert "Traceback (most recent call last)" in board.log.read_text().partition("task bare")[2]


def test_a_cancelled_task_ends_and_its_process_trains_the_next_one(
    board: Board, undisturbed: str
) -> None:
    board.ask("long", training={"epochs": 100_000, "batch_size": 4})
    child = board.child()
    board.ask("next")
    assert board.digest(board.stage.reply("next")) == undisturbed
    assert child.is_running()


def test_the_process_is_kept_while_a_run_is_at_work_and_ends_after_it(board: Board) -> None:
    state = CoordinatorState(session="feedface", owner="me", status="online", run="r-kept")
    topic = board.stage.topics.coordinator()
    board.stage.send(topic, state.model_copy(update={"run_status": "running"}), retain=True)
    board.ask("kept", run="r-kept", training={"epochs": 1, "batch_size": 4})
    board.digest(board.stage.reply("kept"))
    (child,) = board.children()
    with pytest.raises(psutil.TimeoutExpired):
        child.wait(1.2)
    board.stage.send(topic, state.model_copy(update={"run_status": "finished"}), retain=True)
    wait_until_ended([child])
    board.stage.wait(lambda: not board.children(), "the end of the process")


def test_the_process_ends_with_its_agent(mosquitto: MosquittoBroker, tmp_path: Path) -> None:
    board = Board(mosquitto, tmp_path)
    board.ask("endless", training={"epochs": 100_000, "batch_size": 4})
    child = board.child()
    board.agent.kill()
    wait_until_ended([child])
    board.end()


def test_an_idle_agent_has_imported_nothing_that_trains_or_draws(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    code = """
import atexit, sys
blocked = ("textual", "torchvision", "sklearn", "pandas", "scipy", "dp_accounting", "amqtt")
sys.modules.update(dict.fromkeys(blocked))  # as if they were not installed
atexit.register(lambda: print(sorted({name.partition(".")[0] for name in sys.modules})))
from device_agent.commands.cli import main
main()
"""
    words = agent_words(mosquitto.address, tmp_path, write_data(tmp_path / "data.npz"), NAME)[1:]
    agent = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    stage = Stage(mosquitto.address, NAME)
    try:
        assert stage.wait_online().labels
        stage.wait_for_state("idle")
    finally:
        stage.close()
        agent.terminate()
        imported = agent.communicate()[0]
    assert "paho" in imported
    assert "'torch'" not in imported
