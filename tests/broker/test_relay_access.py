"""Behind access rules, a third device that listens to everything is not sent others' blobs."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.cli.programs import processes
from edgefed.cli.programs.processes import wait_for_coordinator
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.transport.link import Link
from edgefed.wire.blobs import chunk_count
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import Chunk, Need, Reply, Task
from edgefed.wire.topics import Topics
from tests.broker.test_secured_fleet import DEVICES, FLEET, login, secured_broker
from tests.programs.forked_fleet import ForkedProcesses
from tests.transport.listening import Inbox, linked, wait_until

THIRD = "cam-3"
TOPICS = Topics(FLEET)
COMMON = {
    "model": {"name": "mlp"},
    "data": {"name": "none"},
    "rounds": {"count": 1, "min_devices": len(DEVICES), "deadline": 120},
}
STEPS = 3
"""Exchanges until mixes are sent."""

MIXES = {**COMMON, "labels": {"count": 1000, "mix_share": 1.0, "noise": "none"}}


def write_images(path: Path, label: int) -> Path:
    """Write images of one of two labels."""
    pixels = np.random.default_rng(label).integers(0, 256, (20, 1, 12, 12)).astype(np.uint8)
    np.savez(path, x=pixels, y=np.full(20, label), classes=2)
    return path


def needs(digest: str, size: int) -> tuple[Need, Need]:
    numbers = tuple(range(chunk_count(size)))
    return Need(digest=digest, first=True), Need(digest=digest, first=False, chunks=numbers)


def sent(inbox: Inbox) -> dict[str, tuple[str, int]]:
    """Return the receiver and the size of each blob between devices, by digest."""
    topics = {TOPICS.reply(device) for device in DEVICES}
    replies = [decode(m.payload, Reply) for m in inbox.messages() if m.topic in topics]
    return {each.digest: (to, each.size) for reply in replies for to, each in reply.relays.items()}


def ask_for_all(third: Link, heard: Inbox) -> None:
    """Let the third device ask for each blob that others were sent."""
    for digest, (_, size) in sent(heard).items():
        for need in needs(digest, size):
            third.publish(TOPICS.up_need(THIRD), encode(need))


def delivers(inbox: Inbox) -> bool:
    tasks = [m for m in inbox.messages() if m.topic == TOPICS.task(DEVICES[0])]
    return any(decode(each.payload, Task).relays for each in tasks)


def chunks_of(inbox: Inbox, digest: str) -> set[tuple[str, int]]:
    """Return the topic and the number of each chunk of a blob."""
    arrived = [each for each in inbox.messages() if each.topic.endswith("/c")]
    parts = [(each.topic, decode(each.payload, Chunk)) for each in arrived]
    return {(topic, part.index) for topic, part in parts if part.digest == digest}


@pytest.mark.slow
@pytest.mark.mosquitto
def test_a_third_device_that_asks_for_it_receives_nothing(tmp_path: Path) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(secured_broker(tmp_path, (*DEVICES, THIRD)))
        home = ForkedProcesses(login(broker, "coordinator"), FLEET, tmp_path / "coordinator")
        stack.enter_context(processes.running(home))
        home.start_coordinator()
        wait_for_coordinator(home)
        for seed, device in enumerate(DEVICES):
            own = ForkedProcesses(login(broker, device), FLEET, tmp_path / device, share_mixes=True)
            stack.enter_context(processes.running(own))
            own.start_agent(device, f"npz:{write_images(tmp_path / f'{device}.npz', seed)}", 0.2)
        root = f"{TOPICS.root}/#"
        _, operator = stack.enter_context(linked(home.address, "operator", root))
        third, heard = stack.enter_context(linked(login(broker, THIRD), "third", "#", root))
        client = CoordinatorClient(home.address, FLEET)
        client.connect()
        stack.callback(client.close)

        def record(run: str) -> dict[str, Any]:
            return dict(client.ask("run.show", run=run))

        def is_done(exchanges: int) -> bool:
            found = record(run)
            return (found["exchanges"], found["status"]) == (exchanges, "paused")

        ask = partial(ask_for_all, third, operator)
        run = client.order("run.start", recipe=MIXES, paused=True)["run"]
        for step in range(1, STEPS + 1):
            client.order("run.order", run=run, action="step")
            wait_until(partial(is_done, step), "the end of the exchange")
        wait_until(lambda: len(sent(operator)) == len(DEVICES), "what the devices send")

        def asks_too_often() -> bool:
            ask()  # it is at the coordinator, and not yet asked for
            return any("unknown devices were not read" in text for text in notes(tmp_path, run))

        wait_until(asks_too_often, "a warning")
        client.order("run.order", run=run, action="resume")
        wait_until(lambda: delivers(operator), "the delivery")
        while record(run)["status"] not in ("finished", "failed"):
            ask()
        assert record(run)["status"] == "finished", record(run)["reason"]
        both = sent(operator)
    assert {receiver for receiver, _ in both.values()} == set(DEVICES)
    for digest, (receiver, size) in both.items():
        (sender,) = set(DEVICES) - {receiver}
        seen = chunks_of(operator, digest)
        count = range(chunk_count(size))
        assert seen == {
            *((TOPICS.up_chunk(sender), number) for number in count),
            *((TOPICS.down_chunk(receiver), number) for number in count),
        }
        assert chunks_of(heard, digest) == set()
    reached = {each.topic for each in heard.messages()}
    assert TOPICS.coordinator() in reached, "it does listen"
    assert all(topic.startswith(f"{TOPICS.root}/all/") for topic in reached)
    blobs = tmp_path / "coordinator"
    assert not [path for path in blobs.rglob("*") if path.name in both]


def notes(folder: Path, run: str) -> list[str]:
    (log,) = folder.rglob(f"runs/{run}/events.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return [event["text"] for event in events if event["kind"] == "note"]
