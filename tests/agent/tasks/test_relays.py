"""An agent fetches what other devices sent it for itself alone, and deletes it after its reply."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.wire.blobs import BlobCache
from edgefed.wire.message_parts import DeliveredRelay
from edgefed.wire.messages import BlobRef, Need, Task
from edgefed.wire.tensors import digest
from edgefed.worker.task_inputs import TaskInputs
from tests.agent.agent_harness import Stage, fork_agent, write_data
from tests.support.relaying import bytes_for, installed
from tests.worker.tasks import task as plain_task

NAME = "board-1"
DATA = bytes_for(1, "anybody", 300_000)


class ListeningStage(Stage):
    """A hand-made coordinator that remembers what it was asked for."""

    def __init__(self, *arguments: Any) -> None:
        self.needs: list[Need] = []
        super().__init__(*arguments)

    def _give(self, need: Need) -> None:
        self.needs.append(need)
        super()._give(need)


@pytest.fixture
def stage(
    mosquitto: MosquittoBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ListeningStage]:
    with installed(tmp_path / "site", monkeypatch):
        data = write_data(tmp_path / "data.npz")
        agent = fork_agent(mosquitto.address, tmp_path / "state", data, NAME)
        made = ListeningStage(mosquitto.address, NAME)
        try:
            made.wait_online()
            yield made
        finally:
            made.close()
            agent.kill()
            agent.wait()


def relayed(data: bytes, sender: str = "other") -> DeliveredRelay:
    return DeliveredRelay(exchange="r-0", sender=sender, digest=digest(data), size=len(data))


def ask(stage: Stage, name: str, **changes: Any) -> Task:
    task = stage.task(name, algorithm="relaying", codec="fp32", **changes)
    stage.ask(task)
    return task


@pytest.mark.mosquitto
def test_it_asks_for_chunks_of_its_own_and_deletes_the_blob_when_it_has_answered(
    stage: ListeningStage, tmp_path: Path
) -> None:
    name = stage.hold(DATA)
    ask(stage, "first", index=1, relays=(relayed(DATA),))
    reply = stage.reply("first")
    assert (reply.status, reply.metrics["received"]) == ("ok", 1.0)
    asked = [need for need in stage.needs if need.digest == name]
    assert asked
    assert not any(need.first for need in asked), "a broadcast might answer it"
    folder = tmp_path / "state"
    stage.wait(lambda: not [p for p in folder.rglob("*") if p.name.startswith(name)], "its end")
    assert [p for p in folder.rglob("*") if p.name == reply.blobs["delta"].digest]
    stage.receipt(reply)
    ask(stage, "second", index=2)
    other = stage.reply("second")
    assert other.blobs["delta"].digest != reply.blobs["delta"].digest


@pytest.mark.mosquitto
def test_what_it_sends_to_others_is_kept_until_its_exchange_is_over(
    stage: ListeningStage,
) -> None:
    changes = {"receivers": ("one", "two"), "max_relay_bytes": 70_000, "blobs": {}}
    task = ask(stage, "passing", question="pass", **changes)
    reply = stage.reply("passing")
    assert set(reply.relays) == {"one", "two"}
    for receiver, sent in reply.relays.items():
        ref = BlobRef(digest=sent.digest, size=sent.size)
        assert stage._pull(ref) == bytes_for(task.seed, receiver, 70_000)


def test_a_blob_that_the_coordinator_sends_to_all_is_neither_private_nor_deleted(
    tmp_path: Path,
) -> None:
    cache = BlobCache(tmp_path, 1 << 20)
    shared, other = digest(DATA), b"for one"
    ref = BlobRef(digest=shared, size=len(DATA))
    task = plain_task(
        blobs={"weights": ref}, relays=(relayed(DATA), relayed(other), relayed(other))
    )
    inputs = TaskInputs(task, cache)
    assert inputs.lacking == {shared: len(DATA), digest(other): len(other)}
    assert inputs.private == {digest(other)}
    for data in (DATA, other):
        cache.put(data)
        inputs.arrived(digest(data))
    assert inputs.ready
    assert inputs.read_relay(shared) == DATA
    inputs.delete_private()
    assert (cache.has(shared), cache.has(digest(other))) == (True, False)
    inputs.clear()


def test_a_blob_that_a_power_cut_damaged_is_asked_for_again(tmp_path: Path) -> None:
    name = digest(DATA)
    (tmp_path / name).write_bytes(bytes(len(DATA)))
    inputs = TaskInputs(plain_task(blobs={}, relays=(relayed(DATA),)), BlobCache(tmp_path, 1 << 20))
    assert inputs.lacking == {name: len(DATA)}
