"""Bytes and CPU time of a round by the number of devices, computed and not measured.

A light device of ``benchmarks.fleet_load`` does one task without a broker. Its messages, and those
to it, are encoded by the product and counted: payload, topic and MQTT's header. The CPU time of a
reply is that of docs/performance.md, or an argument.

A gateway is a program at a site, of which the table assumes: it receives tasks and weights once and
keeps them for its site, takes the replies of its devices as a coordinator does, and sends one exact
sum of integers with its number of samples in place of their updates. A reply takes as much CPU time
there, and so does a sum at the coordinator.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.fleet_load.__main__ import HIDDEN, plan
from benchmarks.fleet_load.light_device import CLASSES, SAMPLES, SHAPE, LightDevice, Load
from edgefed.config.recipes.recipe import Recipe
from edgefed.wire.blobs import chunk, chunk_count
from edgefed.wire.envelope import decode, encode, open_envelope
from edgefed.wire.message_parts import BlobRef
from edgefed.wire.messages import Chunk, Message, Need, Receipt, Reply, Task
from edgefed.wire.tensors import digest, pack
from edgefed.wire.topics import Topics

SIZES = (1000, 10_000, 100_000, 1_000_000)

HEADER = 8
"""Bytes of MQTT before a message of 16 KB or more, beside its topic; smaller ones have two less."""

TOPICS, NAME = Topics("computed"), "device-000000"


@dataclass(frozen=True)
class TaskBytes:
    """Bytes of one task of one device.

    Attributes:
        up, down: of all messages from the device and to it.
        update: of these, the chunks of the encoded update.
        values: numbers in the update.
        by_kind: of the messages of each kind, in both directions.
    """

    up: int
    down: int
    update: int
    values: int
    by_kind: dict[str, int]


class _Conversation:
    """The messages of one device's task, in both directions."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._counts = {"up": 0, "down": 0}
        self.by_kind: dict[str, int] = {}
        self._update = ""
        self._load = Load(seed=1)
        self._device = LightDevice(NAME, TOPICS, self._load)
        self._device.publish = self._publish
        self._device.subscribe = self._device.unsubscribe = lambda topic: None
        rng = np.random.default_rng(1)
        shapes = {"1.weight": (HIDDEN, *SHAPE), "1.bias": (HIDDEN,)}
        shapes |= {"2.weight": (CLASSES, HIDDEN), "2.bias": (CLASSES,)}
        weights = {name: rng.standard_normal(of, np.float32) for name, of in shapes.items()}
        self.values = sum(array.size for array in weights.values())
        self._weights = pack(weights)

    def run(self) -> TaskBytes:
        """Do the task and return its bytes."""
        self._device.connected()  # the birth comes once, not with each task
        self._counts["up"] = 0
        self.by_kind = {"birth": self.by_kind["birth"]}
        name, size = digest(self._weights), len(self._weights)
        task = self._task(BlobRef(digest=name, size=size))
        self._to_device(TOPICS.task(NAME), task)
        topic = TOPICS.broadcast_chunk(name)
        self._device.subscribed(topic)
        for number in range(chunk_count(size)):
            piece = Chunk(digest=name, index=number, data=chunk(self._weights, number))
            self._to_device(topic, piece)
        self._device.due(time.monotonic() + 60)
        before = self._counts["up"]
        need = Need(digest=self._update, first=True)
        self._to_device(TOPICS.down_need(NAME), need)
        chunks = self._counts["up"] - before
        receipt = Receipt(exchange=task.exchange, outcome="accepted")
        self._to_device(TOPICS.receipt(NAME), receipt)
        return TaskBytes(
            self._counts["up"], self._counts["down"], chunks, self.values, self.by_kind
        )

    def _task(self, weights: BlobRef) -> Task:
        recipe = self._recipe.model_dump(mode="json")
        return Task(
            run="20261129-120000-load",
            exchange="20261129-120000-load-0",
            index=0,
            round=1,
            rounds=self._recipe.rounds.count,
            question="fit",
            device=NAME,
            deadline=self._recipe.rounds.deadline,
            seed=2**62,
            algorithm="fedavg",
            settings={},
            model=recipe["model"],
            shape=SHAPE,
            classes=CLASSES,
            class_names=tuple(map(str, range(CLASSES))),
            training=recipe["training"],
            codec=self._recipe.wire.uplink,
            error_feedback=True,
            samples=SAMPLES,
            blobs={"weights": weights},
            params={},
            nonce="0" * 16,
            session="0" * 16,
        )

    def _to_device(self, topic: str, message: Message) -> None:
        payload = encode(message)
        self._count("down", topic, payload)
        self._device.take(topic, payload)

    def _publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        del qos, retain
        self._count("up", topic, payload)
        if topic == TOPICS.reply(NAME):
            self._update = decode(payload, Reply).blobs["delta"].digest

    def _count(self, way: str, topic: str, payload: bytes) -> None:
        size = len(topic) + len(payload) + HEADER - 2 * (len(payload) < 16_000)
        kind = open_envelope(payload).kind
        if kind == "telemetry":  # sent every ten seconds, with a task or without
            return
        self._counts[way] += size
        self.by_kind[kind] = self.by_kind.get(kind, 0) + size


def task_bytes(uplink: str) -> TaskBytes:
    """Return the bytes of a task whose update is encoded by a codec; the weights are fp32."""
    recipe = plan(1, 3)
    wire = recipe.wire.model_copy(update={"uplink": uplink})
    return _Conversation(recipe.model_copy(update={"wire": wire})).run()


def row(
    devices: int, task: TaskBytes, reply_ms: float, site: int, sum_bytes: float
) -> dict[str, Any]:
    """Return the figures of a round of so many devices.

    Args:
        devices: all of which answer.
        task: bytes of a device's task.
        reply_ms: CPU time of the coordinator, or of a gateway, for a reply.
        site: devices of a gateway.
        sum_bytes: of a gateway's sum for each value.
    """
    gateways = -(-devices // site)
    summed = task.up - task.update + round(sum_bytes * task.values)
    return {
        "devices": devices,
        "flat: cpu s": devices * reply_ms / 1000,
        "flat: GB up": devices * task.up / 1e9,
        "flat: GB down": devices * task.down / 1e9,
        "gateways": gateways,
        "coordinator: cpu s": gateways * reply_ms / 1000,
        "coordinator: GB up": gateways * summed / 1e9,
        "coordinator: GB down": gateways * task.down / 1e9,
        "gateway: cpu s": min(devices, site) * reply_ms / 1000,
        "gateway: GB up": min(devices, site) * task.up / 1e9,
    }
