"""Targets of the agent: its message handlers with real tasks and a real store, and its limits."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from benchmarks.fuzzing.broker_message import UnconnectedLink, decode_again, join, split
from benchmarks.fuzzing.fuzz_clock import FuzzClock
from benchmarks.fuzzing.random_messages import Pools, payload
from benchmarks.fuzzing.targets import Reader, Target
from device_agent.agent import Agent
from device_agent.arrival_limits import ArrivalLimits
from device_agent.device_store import DeviceStore
from device_agent.identity import Identity
from device_agent.log_ring import LogRing
from device_agent.renewal import Renewal
from device_agent.telemetry import Sensors
from edgefed.algorithms.registry import algorithms
from edgefed.config.address import Address
from edgefed.config.images_section import ImagesSection
from edgefed.config.recipe import ModelSection
from edgefed.config.training_section import TrainingSection
from edgefed.learn.model_building import build
from edgefed.learn.types import Samples
from edgefed.transport.inbox import Inbox
from edgefed.wire.diagnostic_messages import LogRequest, Ping
from edgefed.wire.messages import (
    MESSAGES,
    Birth,
    Cancel,
    Chunk,
    CoordinatorState,
    Need,
    Receipt,
    Task,
)
from edgefed.wire.tensors import digest, pack
from edgefed.wire.topics import Topics
from edgefed.worker.device_credentials import DeviceCredentials
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker

TOPICS = Topics("fuzz")
DEVICE, SESSION = "dev-1", "d" * 16
MODEL: dict[str, Any] = {"name": "mlp", "hidden": [4]}


def _weights() -> bytes:
    return pack(build(ModelSection.model_validate(MODEL), (1, 2, 2), 2, 5).weights())


BLOBS = (_weights(), *(bytes([number]) * (number * 70_000 + 5) for number in range(2)))
TRAINING = {**TrainingSection().model_dump(mode="json"), "epochs": 1, "max_steps": 3}
IMAGES = ImagesSection().model_dump(mode="json")
REFS = tuple({"digest": digest(blob), "size": len(blob), "patches": []} for blob in BLOBS)
POOLS: Pools = {
    "device": (DEVICE,),
    "session": (*9 * (SESSION,), "", "e" * 16),
    "exchange": tuple(f"r-1-{number}" for number in range(500)),
    "run": tuple(f"r-{number}" for number in range(50)),  # one that is closed asks for nothing
    "index": (0, 1, 5, 3000, 3000),
    "closed_through": (-1, -1, 0),
    "rounds": (0, 5),
    "digest": tuple(digest(blob) for blob in BLOBS),
    "question": ("fit", "fit", "fit", "evaluate", "mean", "nothing"),
    "model": (*24 * (MODEL,), {"name": "nothing"}, {"hidden": "x"}, {}),
    "training": (*30 * (TRAINING,), {**TRAINING, "epochs": -1}, {"max_steps": 2}, {}),
    "shape": (*30 * ([1, 2, 2],), [4], [], [10**9, 10**9]),
    "classes": (*30 * (2,), 0, 2**50),
    "class_names": (*20 * ([],), ["a", "b"], ["a", "a"]),
    "deadline": (30.0,),
    "samples": (8, 8, 5),
    "params": ({}, {}, {}, {"tau": 1}, {"mode": "x"}),
    "receivers": ([], [], ["dev-2"]),
    "relays": ([], [], []),
    "blobs": (*20 * ({"weights": REFS[0]},), {"weights": REFS[1]}, {"weights": REFS[2]}, {}),
    "codec": (*9 * ("fp32",), "fp32", "bf16", "int8", "nothing"),
    "images": (*20 * (IMAGES,), {}, {**IMAGES, "resize": 4}),
    "labels": (*60 * ({},), {"mode": "real"}),
    "personal": (*60 * ({},), {"layers": ["x"]}),
    "privacy": (*60 * ({},), {"mechanism": "local"}, {"mechanism": "central"}),
    "secure_aggregation": (*60 * ({},), {"enabled": True}),
    "evaluation": ({}, {"confusion": True}),
    "chunks": ([], [0], [0, 1, 2], [99]),
}
KINDS: dict[str, type[Any]] = {
    "task": Task,
    "receipt": Receipt,
    "cancel": Cancel,
    "need": Need,
    "ping": Ping,
    "log": LogRequest,
}


def make_arrival(draws: random.Random) -> bytes:
    """Return a topic and a payload as a broker delivers them to an agent."""
    kind = draws.random()
    if kind < 0.15:
        both = TOPICS.down_chunk(DEVICE), TOPICS.broadcast_chunk(digest(draws.choice(BLOBS)))
        return join(draws.choice(both), payload(draws, (Chunk,), POOLS), draws)
    if kind < 0.25:
        return join(TOPICS.coordinator(), payload(draws, (CoordinatorState,), POOLS), draws)
    if kind < 0.3:
        own: Pools = {**POOLS, "session": (SESSION,)}  # another agent of its name would end it
        return join(TOPICS.birth(DEVICE), payload(draws, (Birth,), own), draws)
    leaf = draws.choice(("task", "task", *KINDS))
    kinds = (KINDS[leaf],) if draws.random() < 0.97 else MESSAGES
    pools = with_algorithm(draws) if leaf == "task" else POOLS
    return join(f"{TOPICS.root}/down/{DEVICE}/{leaf}", payload(draws, kinds, pools), draws)


def with_algorithm(draws: random.Random) -> Pools:
    """Return values for a task of one algorithm with its settings, mostly all of them."""
    name = draws.choice((*algorithms(), "nothing"))
    known = algorithms().get(name)
    settings = known.Settings().model_dump(mode="json") if known is not None else {}
    own: tuple[Any, ...] = (
        *15 * (settings,),
        {},
        {**settings, "more": 1},
        dict.fromkeys(settings, "x"),
    )
    return {**POOLS, "algorithm": (name,), "settings": own}


def unconnected_agent(
    folder: Path, clock: FuzzClock, renewal: Renewal | None = None, blobs: tuple[bytes, ...] = ()
) -> Agent:
    """Return an agent that holds the first two blobs and more, and whose messages nobody gets."""
    own = None if renewal is None else renewal.current()
    address = Address("127.0.0.1", 1, tls=own is not None, credentials=own)
    trust = None if renewal is None else DeviceCredentials(renewal.current)
    birth = Birth(session=SESSION, status="online", samples=8)
    store = DeviceStore(folder, 2**24)
    for blob in (*BLOBS[:2], *blobs):
        store.cache.put(blob)
    draws = np.random.default_rng(1)
    samples = Samples(draws.random((8, 1, 2, 2), np.float32), np.arange(8) % 2)
    made = Agent(
        Identity("fuzz", DEVICE, birth),
        address,
        store,
        Worker(TrainerCache(), samples, samples, credentials=trust),
        Sensors(),
        clock,
        renewal,
        _log(),
    )
    link = UnconnectedLink(made._inbox, own)
    for part in (made, made._publisher, made._sender, made._downloads, made._tasks):
        part._link = link
    return made


def _log() -> LogRing:
    """Return a log with some lines, one of them as long as a line may be."""
    ring = LogRing()
    for text in (*("a line",) * 300, "é" * 600):
        ring.handle(logging.makeLogRecord({"name": "device_agent", "levelno": 20, "msg": text}))
    return ring


@contextmanager
def agent(folder: Path) -> Iterator[Reader]:
    """Hand messages to an agent, which trains when a task can be done; limits are not applied."""
    clock = FuzzClock()
    made = unconnected_agent(folder, clock)

    def read(data: bytes) -> None:
        take(made, clock, data)
        decode_again(TOPICS, split(data))

    yield read
    end(made)


def take(made: Agent, clock: FuzzClock, data: bytes, blobs: tuple[bytes, ...] = ()) -> None:
    """Hand a message to an agent, and what its own threads tell it then.

    It gets back the blobs that it has deleted because a task said that they were private.
    """
    clock.move(0.05)
    cache = made._store.cache
    for blob in (*BLOBS[:2], *blobs):
        if not cache.has(digest(blob)):
            cache.put(blob)
    before = made._training._current
    made._take(split(data))
    # A task that has just begun may end before the next message comes.
    patience = 0.02 if made._training._current not in (None, before) else 0.0
    while (item := made._inbox.get(patience)) is not None:
        made._take(item)
        patience = 0.0
    made._tasks.retry()
    made._tick()
    made._link._pending.clear()


def end(made: Agent) -> None:
    """End the threads of an agent."""
    made._training.stop()
    made._sender.stop()
    made._downloads.close()
    made._store.close()


@contextmanager
def limits(folder: Path) -> Iterator[Reader]:
    """Judge messages by their kinds."""
    del folder
    clock = FuzzClock()
    gate = ArrivalLimits(TOPICS, clock)
    gate.know_run("r-1")
    inbox: Inbox[NoReturn] = Inbox(clock, gate=gate)

    def read(data: bytes) -> None:
        clock.move(0.001)
        inbox.put(split(data))
        while inbox.get(0.0) is not None:
            pass

    yield read


TARGETS = (
    Target("agent", make_arrival, agent, 3, "wire"),
    Target("arrivals", make_arrival, limits, 5, "wire"),
)
