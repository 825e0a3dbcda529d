"""A device that speaks the whole protocol and trains nothing: its answers are random updates."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from device_agent.reports.progress_reporter import UPLOAD_AFTER
from edgefed.transport.blob_intake import IDLE, RETRY
from edgefed.transport.reply_resender import ReplyResender
from edgefed.trust.signatures import Signer
from edgefed.wire.blobs import chunk, chunk_count
from edgefed.wire.codecs import CODECS
from edgefed.wire.diagnostic_messages import Ping, Pong
from edgefed.wire.envelope import decode, encode
from edgefed.wire.limits import WINDOW_REQUEST
from edgefed.wire.message_parts import BlobRef
from edgefed.wire.messages import (
    Birth,
    Cancel,
    Chunk,
    CoordinatorState,
    Message,
    Need,
    Progress,
    Receipt,
    Reply,
    Task,
    Telemetry,
)
from edgefed.wire.tensors import digest, unpack
from edgefed.wire.topics import Topics

SAMPLES, HELD_OUT = 60, 6
SHAPE = (64,)
CLASSES = 10
TELEMETRY_EVERY = 10.0
TRAINING = (0.1, 1.0)
"""Least and most seconds between the last chunk and the reply."""

Publish = Callable[[str, bytes, int, bool], None]
"""Topic, payload, quality of service and whether the broker retains it."""


@dataclass
class Load:
    """What the devices of a process share and count.

    Attributes:
        blobs: chunks of each blob by number. They are kept once: a device notes only which it has.
        receipts: seconds from the first publish of each accepted reply to its receipt.
        replies, repeated: replies, and those that were published again.
        outcomes: receipts by outcome.
    """

    seed: int
    blobs: dict[str, dict[int, bytes]] = field(default_factory=dict)
    receipts: list[float] = field(default_factory=list)
    replies: int = 0
    repeated: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)


@dataclass
class _Download:
    """A blob on its way.

    Attributes:
        asked: the chunks that were requested one by one; None while a broadcast is expected.
        due: the monotonic second of the next request.
    """

    digest: str
    count: int
    held: set[int] = field(default_factory=set)
    asked: set[int] | None = None
    due: float = float("inf")
    retries: int = 0


class LightDevice:
    """One device; its connection calls ``connected``, ``subscribed``, ``take`` and ``due``.

    Args:
        name: of the device.
        topics: of the fleet.
        load: shared with the other devices of this process.
        signer: signs its messages; None in a fleet without certificates.
    """

    def __init__(self, name: str, topics: Topics, load: Load, signer: Signer | None = None) -> None:
        self.name = name
        self.session = digest(f"{load.seed} {name}".encode())[:16]
        self.publish: Publish
        self.subscribe: Callable[[str], None]
        self.unsubscribe: Callable[[str], None]
        self._topics = topics
        self._load = load
        self._signer = signer
        self._random = random.Random(f"{load.seed} {name}")
        self._resender = ReplyResender(self._send_reply)
        self._sent: dict[str, float] = {}
        self._kept: dict[str, Reply] = {}
        self._uploads: dict[str, bytes] = {}
        self._task: Task | None = None
        self._downloads: dict[str, _Download] = {}
        self._trained_at = self._upload_at = float("inf")
        self._telemetry_due = time.monotonic() + TELEMETRY_EVERY * self._random.random()

    @property
    def will(self) -> tuple[str, bytes]:
        """Topic and payload of what the broker publishes when the connection breaks."""
        topic = self._topics.birth(self.name)
        gone = Birth(session=self.session, status="lost")
        return topic, encode(gone, topic, self._signer)

    # -- the connection -----------------------------------------------------------------------

    def connected(self) -> None:
        """Subscribe, and publish the birth."""
        self.subscribe(self._topics.every_down(self.name))
        self.subscribe(self._topics.coordinator())
        birth = Birth(
            session=self.session,
            status="online",
            hardware="light",
            samples=SAMPLES,
            held_out=HELD_OUT,
            classes=CLASSES,
            shape=SHAPE,
        )
        self._send(self._topics.birth(self.name), birth, retained=True)
        self._tell("idle")
        self._resender.reconnected(time.monotonic())

    def subscribed(self, topic_filter: str) -> None:
        """Request the blob whose subscription holds now."""
        for download in self._downloads.values():
            if self._topics.broadcast_chunk(download.digest) == topic_filter:
                download.due = time.monotonic() + IDLE * (1 + self._random.random())
                self._need(Need(digest=download.digest, first=True))

    def take(self, topic: str, payload: bytes) -> None:
        """Take a message."""
        expected = (Task, Chunk, Need, Receipt, Cancel, CoordinatorState)
        if topic == self._topics.ping(self.name):
            pong = Pong(nonce=decode(payload, Ping).nonce, session=self.session)
            self._send(self._topics.pong(self.name), pong, qos=0)
            return
        match decode(payload, *expected):
            case Task() as task:
                self._take_task(task)
            case Chunk() as piece:
                self._take_chunk(piece)
            case Need() as need:
                self._upload(need)
            case Receipt() as receipt:
                self._take_receipt(receipt)
            case Cancel() as cancel:
                self._resender.heard(cancel.exchange)
                self._drop()

    def due(self, now: float) -> None:
        """Do what time brings: telemetry, requests, replies and their repetitions."""
        if now >= self._telemetry_due:
            self._telemetry_due = now + TELEMETRY_EVERY
            health = Telemetry(session=self.session, cpu=self._random.uniform(5, 99), memory=10**9)
            self._send(self._topics.telemetry(self.name), health, qos=0)
        for download in self._downloads.values():
            if now >= download.due:
                self._pull(download, now)
        if now >= self._trained_at:
            self._trained_at = float("inf")
            self._answer()
        if now >= self._upload_at:
            self._tell("upload", next(iter(self._kept)))
        self._resender.due(now)

    # -- a task -------------------------------------------------------------------------------

    def _take_task(self, task: Task) -> None:
        kept = self._kept.get(task.exchange)
        if kept is not None:
            self._resender.put(kept, time.monotonic())
            return
        if self._task is not None and self._task.exchange == task.exchange:
            self._tell("download", task.exchange)
            return
        self._drop()
        self._task = task
        self._downloads = {
            name: _Download(name, chunk_count(size)) for name, size in task.needed.items()
        }
        self._tell("download", task.exchange)
        for name in self._downloads:
            self.subscribe(self._topics.broadcast_chunk(name))
        self._see_whether_whole()

    def _take_chunk(self, piece: Chunk) -> None:
        download = self._downloads.get(piece.digest)
        if download is None:
            return
        self._load.blobs.setdefault(piece.digest, {}).setdefault(piece.index, piece.data)
        download.held.add(piece.index)
        now = time.monotonic()
        if download.asked is None:
            download.due = now + IDLE * (1 + self._random.random())
        else:
            download.asked.discard(piece.index)
            if not download.asked:
                self._pull(download, now)
        if len(download.held) == download.count:
            del self._downloads[piece.digest]
            self.unsubscribe(self._topics.broadcast_chunk(piece.digest))
            self._see_whether_whole()

    def _pull(self, download: _Download, now: float) -> None:
        """Request the next missing chunks one by one."""
        missing = [number for number in range(download.count) if number not in download.held]
        download.retries += bool(download.asked)
        download.asked = set(missing[:WINDOW_REQUEST])
        download.due = now + RETRY * 2**download.retries * (1 + 0.2 * self._random.random())
        if download.asked:
            chunks = tuple(sorted(download.asked))
            self._need(Need(digest=download.digest, first=False, chunks=chunks))

    def _see_whether_whole(self) -> None:
        if self._task is not None and not self._downloads:
            self._tell("train", self._task.exchange)
            self._trained_at = time.monotonic() + self._random.uniform(*TRAINING)

    def _answer(self) -> None:
        """Reply to the task with a random update."""
        task = self._task
        if task is None:
            return
        self._drop()
        fits = task.question == "fit"
        delta = self._delta(task) if fits else b""
        name = digest(delta)
        self._uploads = {name: delta}
        reply = Reply(
            run=task.run,
            exchange=task.exchange,
            index=task.index,
            device=self.name,
            session=self.session,
            bases={role: ref.digest for role, ref in task.blobs.items()},
            status="ok",
            samples=SAMPLES if fits else HELD_OUT,
            metrics={"loss": 1.0} if fits else {"loss": 1.0, "accuracy": 0.0},
            blobs={"delta": BlobRef(digest=name, size=len(delta))} if fits else {},
            nonce=task.nonce,
        )
        self._kept = {task.exchange: reply}
        self._load.replies += fits
        now = self._sent[task.exchange] = time.monotonic()
        self._upload_at = now + UPLOAD_AFTER
        self._resender.put(reply, now)

    def _delta(self, task: Task) -> bytes:
        """Return an encoded update of the weights that the task names."""
        pieces = self._load.blobs[task.blobs["weights"].digest]
        weights = unpack(b"".join(pieces[number] for number in sorted(pieces)), None)
        rng = np.random.default_rng(task.seed)
        delta = {
            name: (1e-3 * rng.standard_normal(array.shape)).astype(np.float32)
            for name, array in weights.items()
        }
        return CODECS[task.codec].encode(delta, rng)

    def _upload(self, need: Need) -> None:
        data = self._uploads.get(need.digest)
        if data is None:
            return
        for number in need.chunks or range(chunk_count(len(data))):
            piece = Chunk(digest=need.digest, index=number, data=chunk(data, number))
            self.publish(self._topics.up_chunk(self.name), encode(piece), 1, False)

    def _take_receipt(self, receipt: Receipt) -> None:
        if not self._resender.heard(receipt.exchange, time.monotonic()):
            return
        counts = self._load.outcomes
        counts[receipt.outcome] = counts.get(receipt.outcome, 0) + 1
        took = time.monotonic() - self._sent.pop(receipt.exchange)
        if self._kept[receipt.exchange].blobs:
            self._load.receipts.append(took)
        self._tell("done", receipt.exchange)

    def _drop(self) -> None:
        for name in self._downloads:
            self.unsubscribe(self._topics.broadcast_chunk(name))
        self._downloads = {}
        self._task = None
        self._trained_at = float("inf")

    # -- publishing ---------------------------------------------------------------------------

    def _send_reply(self, reply: Reply) -> None:
        if time.monotonic() - self._sent[reply.exchange] > 1.0:
            self._load.repeated += 1
        self._send(self._topics.reply(self.name), reply)

    def _need(self, need: Need) -> None:
        self._send(self._topics.up_need(self.name), need)

    def _tell(self, state: str, exchange: str = "") -> None:
        self._upload_at = float("inf")
        progress = Progress.model_validate(
            {"session": self.session, "state": state, "exchange": exchange}
        )
        self._send(self._topics.progress(self.name), progress)

    def _send(self, topic: str, message: Message, *, qos: int = 1, retained: bool = False) -> None:
        self.publish(topic, encode(message, topic, self._signer), qos, retained)
