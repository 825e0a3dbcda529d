"""A scripted coordinator, and real agents that it sends tasks to."""

from __future__ import annotations

import queue
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from edgefed.config.recipes.recipe import ModelSection
from edgefed.config.values.address import Address
from edgefed.learn.modeling.model_building import build
from edgefed.transport.inbox import Arrival, Incoming
from edgefed.transport.link import Link
from edgefed.transport.sender import ChunkSender
from edgefed.wire.blobs import chunk_count
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import (
    Birth,
    BlobRef,
    Chunk,
    Message,
    Need,
    Progress,
    Receipt,
    Reply,
    Task,
)
from edgefed.wire.tensors import digest, pack
from edgefed.wire.topics import ParsedTopic, Topics
from tests.complete_task import complete
from tests.processes import clean_environment, start_python
from tests.programs.forked_programs import ForkedProgram

FLEET = "stage"
SAMPLES, SHAPE, CLASSES = 40, (1, 4, 4), 3
MODEL: dict[str, Any] = {"name": "mlp", "hidden": [4096]}
PATIENCE = 60.0

MessageT = TypeVar("MessageT", bound=Message)


def write_data(path: Path, labels: int = CLASSES, samples: int = SAMPLES) -> Path:
    """Write a few samples that can be learned, of so many labels; more begin with the same ones."""
    draws = np.random.Generator(np.random.Philox(4))
    targets = np.arange(samples) % labels
    inputs = draws.standard_normal((samples, *SHAPE)) + targets[:, None, None, None]
    np.savez(path, x=inputs.astype(np.float32), y=targets)
    return path


def start_agent(
    address: Address, state: Path, data: Path, name: str, *extra: str
) -> subprocess.Popen[str]:
    """Start ``edgefed-agent run`` as a process of its own."""
    return start_python("-m", *agent_words(address, state, data, name, *extra))


def fork_agent(address: Address, state: Path, data: Path, name: str, *extra: str) -> ForkedProgram:
    """Start it quickly; what it says goes to a log beside its data."""
    words = agent_words(address, state, data, name, *extra)
    return ForkedProgram(words, clean_environment(), data.with_suffix(".log"))


def agent_words(
    address: Address, state: Path, data: Path, name: str, *extra: str
) -> tuple[str, ...]:
    """Return the agent's module and its arguments."""
    common = ("run", "--broker", str(address), "--fleet", FLEET, "--state", str(state))
    own = ("--name", name, "--data", f"npz:{data}", "--holdout", "0.2")
    return ("device_agent.commands.cli", *common, *own, *extra)


class Stage:
    """Plays the coordinator to one device: asks, gives blobs, pulls what is named.

    Attributes:
        states: what the device said of itself since the last ``forget``.
    """

    def __init__(self, address: Address, device: str) -> None:
        self.device = device
        self.topics = Topics(FLEET)
        self.states: list[Progress] = []
        self.births: list[Birth] = []
        self.blobs: dict[str, bytes] = {}
        self._pieces: dict[str, dict[int, bytes]] = {}
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self.link = Link(address, f"stage-{device}", self._take, subscriptions=(self._all(),))
        self._sender = ChunkSender(self.link)
        self.link.start_now(PATIENCE)

    def close(self) -> None:
        self._sender.stop()
        self.link.stop()

    # -- what a coordinator does ---------------------------------------------------------------

    def task(self, exchange: str, *, index: int = 0, seed: int = 1, **changes: Any) -> Task:
        """A task to train a little; its weights can be asked for."""
        model = build(ModelSection.model_validate(MODEL), SHAPE, CLASSES, 5)
        weights = pack(model.weights())
        ref = BlobRef(digest=self.hold(weights), size=len(weights))
        fields: dict[str, Any] = {
            "run": "r-1",
            "exchange": exchange,
            "index": index,
            "round": index,
            "question": "fit",
            "device": self.device,
            "deadline": 60.0,
            "seed": seed,
            "algorithm": "fedavg",
            "settings": {},
            "model": MODEL,
            "shape": SHAPE,
            "classes": CLASSES,
            "training": {"epochs": 2, "batch_size": 4},
            "codec": "bf16",
            "error_feedback": True,
            "samples": SAMPLES,
            "blobs": {"weights": ref},
            "params": {},
        }
        return Task(**complete({**fields, **changes}))

    def hold(self, data: bytes) -> str:
        """Keep a blob for who asks, and return its name."""
        self.blobs[digest(data)] = data
        return digest(data)

    def ask(self, task: Task) -> None:
        self.send(self.topics.task(self.device), task)

    def receipt(self, reply: Reply) -> None:
        told = Receipt(exchange=reply.exchange, outcome="accepted")
        self.send(self.topics.receipt(self.device), told)

    def send(self, topic: str, message: Message, *, retain: bool = False) -> None:
        self.link.publish(topic, encode(message), retain=retain)

    def reply(self, exchange: str) -> Reply:
        """Return the next reply to an exchange; those to others are repeated until we hear them."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                reply = self._replies.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no reply to {exchange}; states: {self.seen()}") from None
            if reply.exchange == exchange:
                return reply

    def pull(self, reply: Reply) -> dict[str, bytes]:
        """Return a reply's blobs, asked for chunk by chunk where they are not inside it."""
        found = {}
        for role, ref in reply.blobs.items():
            data = reply.inline.get(ref.digest)
            found[role] = data if data is not None else self._pull(ref)
            assert digest(found[role]) == ref.digest
        return found

    def _pull(self, ref: BlobRef) -> bytes:
        count = chunk_count(ref.size)
        pieces = self._pieces[ref.digest] = {}
        self.send(
            self.topics.down_need(self.device),
            Need(digest=ref.digest, first=False, chunks=tuple(range(count))),
        )
        self.wait(lambda: len(pieces) == count, "all chunks of a reply")
        return b"".join(pieces[number] for number in range(count))

    # -- what a test looks at --------------------------------------------------------------------

    def next_reply(self) -> Reply:
        """Return the first reply that was not read yet, to whichever task."""
        return self._replies.get(timeout=PATIENCE)

    def forget(self) -> None:
        self.states.clear()
        while not self._replies.empty():
            self._replies.get()

    def seen(self) -> list[str]:
        """Return the device's states in order, each once in a row."""
        words = [each.state for each in self.states]
        return [word for n, word in enumerate(words) if n == 0 or words[n - 1] != word]

    def wait(self, condition: Callable[[], object], what: str) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until:
                raise AssertionError(f"waited in vain for {what}; states: {self.seen()}")
            time.sleep(0.01)

    def wait_for_state(self, state: str) -> Progress:
        self.wait(lambda: any(each.state == state for each in self.states), f"state {state}")
        return next(each for each in self.states if each.state == state)

    def wait_online(self) -> Birth:
        self.wait(lambda: self.births and self.births[-1].status == "online", "the birth")
        return self.births[-1]

    # -- the link's thread -------------------------------------------------------------------------

    def _all(self) -> str:
        return f"{self.topics.root}/up/{self.device}/#"

    def _take(self, arrival: Arrival) -> None:
        if not isinstance(arrival, Incoming) or not arrival.payload:
            return
        parsed = self.topics.parse(arrival.topic)
        assert parsed is not None
        self._take_message(parsed, decode(arrival.payload, parsed.spec.message))

    def _take_message(self, parsed: ParsedTopic, message: Message) -> None:
        match message:
            case Birth():
                self.births.append(message)
            case Progress():
                self.states.append(message)
            case Reply():
                self._replies.put(message)
            case Need():
                self._give(message)
            case Chunk():
                self._pieces[message.digest][message.index] = message.data

    def _give(self, need: Need) -> None:
        data = self.blobs.get(need.digest)
        if data is None:
            return
        numbers = range(chunk_count(len(data))) if need.first else need.chunks
        broadcast = self.topics.broadcast_chunk(need.digest)
        topic = broadcast if need.first else self.topics.down_chunk(self.device)
        self._sender.send(topic, need.digest, data, numbers)
