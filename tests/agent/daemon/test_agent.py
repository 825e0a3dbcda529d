"""A real agent on a real broker, driven by handwritten messages."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from typer.testing import CliRunner

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker
from device_agent.commands.cli import app
from device_agent.identity.duplicate_name_guard import NEWCOMER
from edgefed.config.values.address import Address
from edgefed.version import VERSION
from edgefed.wire.codecs import decode as decode_tensors
from edgefed.wire.envelope import encode
from edgefed.wire.limits import MAX_MESSAGE_BYTES
from edgefed.wire.messages import (
    BlobRef,
    Cancel,
    Chunk,
    CoordinatorState,
    Need,
    Receipt,
    Task,
)
from tests.agent.agent_harness import (
    CLASSES,
    FLEET,
    PATIENCE,
    SHAPE,
    Stage,
    agent_words,
    write_data,
)
from tests.processes import clean_environment
from tests.programs.forked_programs import ForkedProgram, run_module

pytestmark = pytest.mark.mosquitto

NAME = "board-1"
SESSION = "feedfacefeedface"


@dataclass
class Board:
    """The device under test, which can be killed and started again."""

    address: Address
    state: Path
    data: Path
    processes: list[ForkedProgram] = field(default_factory=list)

    def start(self) -> None:
        self.processes.append(forked(self.address, self.state, self.data, NAME))

    @property
    def process(self) -> ForkedProgram:
        return self.processes[-1]

    def alive(self) -> bool:
        return self.process.poll() is None


def forked(address: Address, state: Path, data: Path, name: str) -> ForkedProgram:
    """Start an agent; what it says goes to two files beside its data."""
    words = agent_words(address, state, data, name)
    return ForkedProgram(words, clean_environment(), *said_by(data, name))


def said_by(data: Path, name: str) -> tuple[Path, Path]:
    """Return the files of its stdout and stderr."""
    return data.with_name(f"{name}.out"), data.with_name(f"{name}.err")


def ended(agent: ForkedProgram, data: Path, name: str) -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr of an agent once it has ended."""
    code = agent.wait(PATIENCE)
    out, err = said_by(data, name)
    return code, out.read_text(), err.read_text()


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    folder = tmp_path_factory.mktemp("board")
    with MosquittoBroker(Address(LOOPBACK, free_port()), folder / "mosquitto") as broker:
        made = Board(broker.address, folder / "state", write_data(folder / "data.npz"))
        made.start()
        try:
            yield made
        finally:
            for process in made.processes:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def connected(board: Board) -> Iterator[Stage]:
    stage = Stage(board.address, NAME)
    stage.wait_online()
    stage.wait_for_state("idle")
    yield stage
    stage.close()


@pytest.fixture
def stage(connected: Stage) -> Stage:
    connected.forget()
    return connected


def test_its_birth_says_what_it_is(stage: Stage) -> None:
    birth = stage.wait_online()
    assert (birth.samples, birth.labels, birth.classes) == (32, (11, 10, 11), CLASSES)
    assert (birth.shape, birth.agent) == (SHAPE, VERSION)
    assert birth.torch


def test_a_task_is_fetched_trained_uploaded_and_done(stage: Stage) -> None:
    task = stage.task("once")
    assert task.blobs["weights"].size > 300_000  # so that it comes in several chunks
    stage.ask(task)
    reply = stage.reply("once")
    delta = decode_tensors(stage.pull(reply)["delta"], None)
    assert delta["fc1.weight"].shape == (4096, 16)
    assert np.abs(delta["fc1.weight"]).max() > 0
    assert (reply.status, reply.samples, reply.exchange) == ("ok", 32, "once")
    assert reply.bases == {"weights": task.blobs["weights"].digest}
    assert not reply.inline
    assert np.isfinite(reply.metrics["loss"])
    assert (reply.cost.download_bytes, reply.cost.joules) == (task.blobs["weights"].size, None)
    assert reply.cost.work_seconds >= reply.cost.training_seconds > 0
    assert reply.cost.download_seconds > 0
    stage.wait_for_state("upload")
    stage.receipt(reply)
    stage.wait_for_state("done")
    words = stage.seen()
    assert words[0] == "download"
    assert words[-3:] == ["train", "upload", "done"]


def test_killed_and_started_again_it_still_answers_from_disk(stage: Stage, board: Board) -> None:
    stage.ask(stage.task("killed"))
    first = stage.reply("killed")
    before = stage.births[-1].session
    board.process.kill()
    stage.wait(lambda: stage.births[-1].status == "lost", "the will")
    board.start()
    stage.wait(lambda: stage.births[-1].status == "online", "the new birth")
    stage.forget()
    stage.ask(stage.task("killed", seed=99))
    again = stage.reply("killed")
    assert stage.births[-1].session != before
    assert again == first.model_copy(update={"session": stage.births[-1].session})
    assert stage.pull(again)["delta"]
    assert "train" not in stage.seen()


def test_closed_exchanges_are_forgotten_and_their_tasks_ignored(stage: Stage) -> None:
    stage.ask(stage.task("closed", index=7, run="r-2"))
    stage.reply("closed")
    state = CoordinatorState(
        session=SESSION, owner="me", status="online", run="r-2", closed_through=7
    )
    stage.send(stage.topics.coordinator(), state)
    stage.forget()
    stage.ask(stage.task("closed", index=7, run="r-2", seed=99))  # somebody kept it
    stage.ask(stage.task("next", index=8, run="r-2"))
    assert stage.reply("next").index == 8
    assert {each.exchange for each in stage.states if each.state == "train"} == {"next"}


def test_replies_that_a_task_says_are_settled_are_forgotten(stage: Stage) -> None:
    stage.ask(stage.task("first", index=3, run="r-3"))
    stage.reply("first")
    stage.ask(stage.task("second", index=5, run="r-3"))
    stage.reply("second")
    stage.ask(stage.task("third", index=9, run="r-3", settled_through=3))
    stage.reply("third")
    stage.forget()
    stage.ask(stage.task("first", index=3, run="r-3", seed=99))  # it is over, and ignored
    stage.ask(stage.task("second", index=5, run="r-3", seed=99))  # it is not, and repeated
    while (read := stage.next_reply()).exchange == "third":
        pass  # nobody has confirmed it
    assert read.exchange == "second"


def test_a_task_for_an_earlier_life_is_ignored(stage: Stage) -> None:
    stage.ask(stage.task("replayed", session="0123456789abcdef"))
    stage.ask(stage.task("fresh", session=stage.births[-1].session))
    assert stage.reply("fresh").status == "ok"
    assert {each.exchange for each in stage.states if each.state == "train"} == {"fresh"}


def test_a_cancelled_task_is_dropped(stage: Stage) -> None:
    long = stage.task("cancelled", training={"epochs": 1000, "batch_size": 1})
    stage.ask(long)
    stage.wait_for_state("train")
    stage.send(stage.topics.cancel(NAME), Cancel(exchange="another"))
    stage.send(stage.topics.cancel(NAME), Cancel(exchange="cancelled"))
    stage.wait_for_state("idle")
    stage.ask(stage.task("after"))
    assert stage.reply("after").status == "ok"


@pytest.mark.parametrize(
    ("index", "status", "through", "dropped"),
    [(10, "running", 10, True), (20, "running", 15, False), (30, "aborted", 25, True)],
)
def test_a_task_whose_cancel_was_lost_is_dropped_when_its_exchange_is_over(
    stage: Stage, index: int, status: str, through: int, dropped: bool
) -> None:
    long = stage.task(
        f"left-{index}", index=index, run="r-2-left", training={"epochs": 1000, "batch_size": 1}
    )
    stage.ask(long)
    stage.wait_for_state("train")
    stage.forget()
    state = CoordinatorState(
        session=SESSION,
        owner="me",
        status="online",
        run="r-2-left",
        run_status=status,
        closed_through=through,
    )
    stage.send(stage.topics.coordinator(), state)
    for _ in range(0 if dropped else 2):  # the first report may be older than the message
        stage.forget()
        stage.wait_for_state("train")
    if not dropped:
        stage.send(stage.topics.cancel(NAME), Cancel(exchange=f"left-{index}"))
    stage.wait_for_state("idle")
    stage.ask(stage.task(f"after-{index}", index=index + 5, run="r-2-left"))
    assert stage.reply(f"after-{index}").status == "ok"
    no_run = CoordinatorState(session=SESSION, owner="me", status="online")
    stage.send(stage.topics.coordinator(), no_run)  # so that tasks of any run are admitted


def test_a_device_whose_reply_nobody_waits_for_is_idle_when_the_run_has_ended(
    stage: Stage,
) -> None:
    stage.ask(stage.task("unheard", index=40, run="r-2-left"))
    stage.reply("unheard")
    stage.wait_for_state("upload")
    stage.forget()
    for status in ("running", "aborted"):
        state = CoordinatorState(
            session=SESSION, owner="me", status="online", run="r-2-left", run_status=status
        )
        stage.send(stage.topics.coordinator(), state)
    stage.wait_for_state("idle")
    no_run = CoordinatorState(session=SESSION, owner="me", status="online")
    stage.send(stage.topics.coordinator(), no_run)


@pytest.mark.parametrize(
    ("status", "reason", "changes"),
    [
        ("refused", "No algorithm 'fedmagic'", {"algorithm": "fedmagic"}),
        ("failed", "mu", {"settings": {"mu": "much"}}),
        ("failed", "", {"blobs": {}}),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else None,
)
def test_a_task_that_cannot_be_done_is_answered_with_the_reason(
    stage: Stage, status: str, reason: str, changes: dict[str, Any]
) -> None:
    exchange = f"bad-{random.randrange(10**9)}"
    stage.ask(stage.task(exchange, **changes))
    reply = stage.reply(exchange)
    assert (reply.status, reply.blobs) == (status, {})
    assert reply.reason
    assert reason in reply.reason
    assert "\n" not in reply.reason


def test_a_blob_of_another_size_holds_up_nothing_else(stage: Stage) -> None:
    ref = BlobRef(digest=stage.hold(b"shorter than it says"), size=999)
    stage.ask(stage.task("short", blobs={"weights": ref}))
    stage.wait_for_state("download")
    stage.ask(stage.task("next"))
    assert stage.reply("next").status == "ok"


def garbage(valid: bytes, rng: random.Random) -> list[bytes]:
    """Payloads that are no message, or not one of ours."""
    version, kind, body = msgpack.unpackb(valid)
    fields = msgpack.unpackb(body, strict_map_key=False)
    return [
        b"\x00",
        b"\xc1",
        rng.randbytes(64),
        valid[: len(valid) // 2],
        valid[:-1],
        valid + b"\x00",
        bytes(MAX_MESSAGE_BYTES + 1000),
        b"\x91" * 1000,
        msgpack.packb((version + 1, kind, body)),
        msgpack.packb((version, "nonsense", body)),
        msgpack.packb((version, kind, b"")),
        msgpack.packb((version, kind, msgpack.packb({**fields, "extra": 1}))),
        msgpack.packb((version, kind, msgpack.packb(dict.fromkeys(fields, 10**15)))),
        msgpack.packb((version, kind, msgpack.packb(dict.fromkeys(fields)))),
        json.dumps({"kind": kind}).encode(),
    ]


def test_needs_of_what_it_does_not_have_are_ignored(stage: Stage) -> None:
    stage.ask(stage.task("needed"))
    reply = stage.reply("needed")
    ref = reply.blobs["delta"]
    for need in (
        Need(digest="0" * 64, first=False, chunks=(0,)),
        Need(digest=ref.digest, first=False, chunks=(10**6, 2**53)),
        Need(digest=ref.digest, first=True),
    ):
        stage.send(stage.topics.down_need(NAME), need)
    assert stage.pull(reply)["delta"]


def test_status_shows_what_the_agent_is_doing(stage: Stage, board: Board) -> None:
    stage.ask(stage.task("shown"))
    stage.receipt(stage.reply("shown"))
    stage.wait_for_state("done")
    arguments = ["--no-config", "--fleet", FLEET, "--state", str(board.state), "--name", NAME]
    told = CliRunner().invoke(app, ["status", *arguments, "--json"])
    assert (told.exit_code, told.stderr) == (0, "")
    notice = json.loads(told.stdout)
    assert notice["running"] is True
    assert notice["connected"] is True
    assert (notice["device"], notice["fleet"], notice["samples"]) == (NAME, FLEET, 32)
    shown = CliRunner().invoke(app, ["status", *arguments])
    assert shown.exit_code == 0
    assert dict(line.split(None, 1) for line in shown.stdout.splitlines() if " " in line)[
        "broker"
    ].strip() == str(board.address)


def test_a_second_agent_of_the_name_is_refused_and_the_first_goes_on(
    stage: Stage, board: Board, tmp_path: Path
) -> None:
    first = stage.births[-1].session
    time.sleep(NEWCOMER)  # until the first one is no newcomer any more
    words = agent_words(board.address, tmp_path, board.data, NAME)
    code, out, err = run_module(*words)
    assert (code, out) == (4, "")
    lines = err.splitlines()
    assert lines[-2:] == [
        f"edgefed: error: Fleet {FLEET} already has a device named {NAME}.  [device.taken]",
        "  try: give this device another name with --name",
    ]
    assert "Traceback" not in err
    assert board.alive()
    stage.wait(lambda: stage.births[-1].session == first, "the first one's birth")
    stage.ask(stage.task("still-here"))
    assert stage.reply("still-here").session == first


def test_it_says_again_who_it_is_when_its_birth_is_cleared(stage: Stage) -> None:
    birth = stage.wait_online()
    told = len(stage.births)
    stage.link.publish(stage.topics.birth(NAME), b"", retain=True)
    stage.wait(lambda: len(stage.births) > told, "the birth")
    assert stage.births[-1] == birth


def test_a_second_agent_on_the_same_folder_is_refused(board: Board) -> None:
    words = agent_words(board.address, board.state, board.data, NAME)
    code, out, err = run_module(*words)
    assert (code, out) == (4, "")
    assert f"is in use by the agent of {NAME}, process {board.process.pid}.  [state.locked]" in err
    assert board.alive()


def test_garbage_on_every_topic_leaves_it_alive_and_working(stage: Stage, board: Board) -> None:
    topics, rng = stage.topics, random.Random(8)
    name = stage.hold(b"some blob")
    valid: Task = stage.task("valid")
    lanes = {
        topics.task(NAME): encode(valid),
        topics.receipt(NAME): encode(Receipt(exchange="x", outcome="late")),
        topics.cancel(NAME): encode(Cancel(exchange="x")),
        topics.down_need(NAME): encode(Need(digest=name, first=False, chunks=(0,))),
        topics.down_chunk(NAME): encode(Need(digest=name, first=True)),
        topics.coordinator(): encode(CoordinatorState(session=SESSION, owner="", status="lost")),
        topics.birth(NAME): encode(stage.births[-1]),
    }
    stage.link._deliver = lambda arrival: None  # our own garbage comes back to us
    try:
        for topic, payload in lanes.items():
            for each in garbage(payload, rng):
                stage.link._client.publish(topic, each, qos=1)
            stage.link._client.publish(topic, b"", qos=1)
        for odd in ("task/more", "c", f"c/{name}", f"c/{name}/x", f"c/{'0' * 63}/1", "", "é"):
            stage.link._client.publish(f"{topics.root}/down/{NAME}/{odd}", b"?", qos=1)
        for number in (0, 1, 30_000):  # well-formed, and nobody asked for it
            part = Chunk(digest=valid.blobs["weights"].digest, index=number, data=b"unasked")
            stage.link._client.publish(topics.down_chunk(NAME), encode(part), qos=1)
        last = stage.link.publish(topics.cancel(NAME), encode(Cancel(exchange="last")))
        last.wait_for_publish(PATIENCE)
    finally:
        stage.link._deliver = stage._take
    for _ in range(3):  # as a coordinator repeats it, since the garbage may be over a limit
        time.sleep(1.5)
        stage.ask(stage.task("after-garbage"))
    assert stage.reply("after-garbage").status == "ok"
    assert "failed" not in stage.seen()
    assert board.alive()
    time.sleep(5)  # until the limits admit tasks again


def test_sigterm_ends_it_in_order_even_while_it_trains(stage: Stage, board: Board) -> None:
    stage.ask(stage.task("endless", training={"epochs": 1000, "batch_size": 1}))
    stage.wait_for_state("train")
    board.process.send_signal(signal.SIGTERM)
    code, out, err = ended(board.process, board.data, NAME)
    assert (code, out) == (0, "")
    assert "Traceback" not in err.rpartition("task endless taken")[2], (
        "failed tasks before it log one"
    )
    stage.wait(lambda: stage.births[-1].status == "lost", "its farewell")


def without_info(err: str) -> list[str]:
    return [line for line in err.splitlines() if " INFO " not in line]


def test_ctrl_c_ends_it_with_one_line(board: Board, tmp_path: Path) -> None:
    other = Stage(board.address, "board-2")
    agent = forked(board.address, tmp_path, board.data, "board-2")
    try:
        other.wait_online()
        agent.send_signal(signal.SIGINT)
        code, out, err = ended(agent, board.data, "board-2")
    finally:
        agent.kill()
        other.close()
    assert (code, out) == (130, "")
    assert without_info(err) == [
        f"agent board-2 of fleet {FLEET} on {board.address}",
        "edgefed: error: Interrupted; replies and private state are on disk.  [interrupted]",
    ]
