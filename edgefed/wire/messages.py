"""The messages of the protocol, as pydantic models; ``docs/protocol.md`` lists them in a table.

The messages of enrolment are in ``enrolment_messages``, those by which an operator looks after a
device in ``diagnostic_messages``, those of model rollouts in ``rollout_messages``, those of updates
of the agent in ``update_messages``.

Messages are small. Large data is a blob, which a message references (``BlobRef``). Fields have
bounds, and unknown fields are rejected. This module uses no sockets or files.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from edgefed.wire import limits
from edgefed.wire.message_parts import BlobRef as BlobRef  # noqa: PLC0414 - part of the messages
from edgefed.wire.message_parts import (
    ClassNames,
    Count,
    DeliveredRelay,
    Digest,
    MetricName,
    Name,
    SentRelay,
    Since,
    Word,
    WorkCost,
)

Text = Annotated[str, Field(max_length=limits.MAX_TEXT)]
Session = Annotated[str, Field(pattern=r"^[0-9a-f]{8,32}$")]
"""A random number of one life of a process; a message of another life is stale."""

Nonce = Annotated[str, Field(pattern=r"^([0-9a-f]{8,32})?$")]
"""A random number that names one message; empty where nobody compares it."""

MAX_CHANNELS = 64
"""Most channels whose means a device tells."""

CertificateBytes = Annotated[bytes, Field(max_length=limits.MAX_CERTIFICATE_BYTES)]


DeviceState = Literal[
    "idle",
    "invited",
    "download",
    "train",
    "evaluate",
    "upload",
    "done",
    "paused",
    "late",
    "rejected",
    "failed",
    "lost",
]
"""The activity of a device, in the dashboard's words."""


class Message(BaseModel):
    """One message body.

    Attributes:
        kind: names its class on the wire.
        introduces: whether it carries its signer's certificate, for receivers that may not know it.
        since: the protocol version since which there are such messages.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    kind: ClassVar[str]
    introduces: ClassVar[bool] = False
    since: ClassVar[int] = 0


class CoordinatorState(Message):
    """The coordinator is there, with the progress of its run. Retained; its will says ``lost``.

    Attributes:
        session: of this coordinator process.
        owner: id of the coordinator's state directory; the same after a restart.
        status: ``online``, or ``lost`` in the will.
        run: id of the current or last run.
        run_status: that run's status.
        round: that run's current round.
        exchange: id of the open exchange.
        closed_through: replies to exchanges of this run up to this index may be thrown away.
    """

    kind = "coordinator"
    introduces = True
    session: Session
    owner: Word
    status: Literal["online", "lost"]
    run: Word = ""
    run_status: Word = ""
    round: Count = 0
    exchange: Word = ""
    closed_through: Annotated[int, Field(ge=-1)] = -1


class Task(Message):
    """A question of an exchange, as it reaches one device.

    Attributes:
        run, exchange, index, round: of the task; ``index`` counts a run's exchanges.
        rounds: planned rounds of the run, over which a learning rate may change.
        question: ``fit``, ``evaluate``, … as the algorithm names it.
        device: the device that receives the task.
        deadline: seconds from now until the reply is late.
        seed: seed of every draw that this task makes on this device.
        algorithm, settings: the algorithm that prepares and answers it, and its settings.
        model: the recipe's model section.
        shape, classes: of one input, and the number of labels that the model distinguishes, or of
            its outputs.
        class_names: the run's classes in order, after which the device numbers its labels; empty
            when labels are plain integers.
        training: the recipe's training section.
        images: its section about images, as inputs and for augmentation; empty for nothing.
        labels: its section about supplements for missing labels; empty for none.
        personal: its section about weights that stay on the device; empty for none.
        secure_aggregation: its section about masked updates; empty where they are not masked.
        privacy: its section about clipping and noise, with the noise multiplier; empty for none.
        evaluation: of a test, its section about the metrics; empty for loss and accuracy.
        codec: how the reply's tensors are encoded.
        error_feedback: whether the encoding error is added to the next reply.
        samples: the number of samples that the device announced; the most its reply may weigh.
        blobs: the algorithm's arrays, by role, such as ``weights``.
        params: small values of the algorithm.
        receivers: the devices to which the reply may send a blob, one to each.
        max_relay_bytes: the largest such blob.
        relays: blobs that other devices sent to this one.
        nonce: a random number that the reply returns.
        settled_through: replies of this device to exchanges of this run up to this index may be
            thrown away, as with ``CoordinatorState.closed_through``.
        number, merged_number: in buffered rounds, how often the device was asked before, and that
            number of its last question whose answer was merged; -1 for none.
        session: of the agent; an agent with another session ignores the task. Filled in whenever
            the task is sent.
        certificates: those of the receivers, in a signed fleet, to encrypt for them; filled in
            whenever the task is sent.
    """

    kind = "task"
    introduces = True
    run: Word
    exchange: Word
    index: Count
    round: Count
    rounds: Count = 0
    question: Word
    device: Name
    deadline: Annotated[float, Field(gt=0, le=limits.MAX_DEADLINE)]
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    algorithm: Word
    settings: dict[str, Any]
    model: dict[str, Any]
    shape: Annotated[tuple[Count, ...], Field(max_length=limits.MAX_DIMENSIONS)] = ()
    classes: Count = 0
    class_names: ClassNames = ()
    training: dict[str, Any]
    images: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    personal: dict[str, Any] = {}
    secure_aggregation: dict[str, Any] = {}
    privacy: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    codec: Word
    error_feedback: bool = False
    samples: Count
    blobs: Annotated[dict[Word, BlobRef], Field(max_length=256)]
    params: dict[str, Any]
    receivers: Annotated[tuple[Name, ...], Field(max_length=limits.MAX_RELAYS)] = ()
    max_relay_bytes: Annotated[int, Field(ge=0, le=limits.MAX_RELAY_BYTES)] = 0
    relays: Annotated[tuple[DeliveredRelay, ...], Field(max_length=limits.MAX_RELAYS)] = ()
    nonce: Nonce = ""
    settled_through: Annotated[int, Field(ge=-1)] = -1
    number: Annotated[int, Field(ge=-1)] = -1
    merged_number: Annotated[int, Field(ge=-1)] = -1
    session: Nonce = ""
    certificates: Annotated[dict[Name, CertificateBytes], Field(max_length=limits.MAX_RELAYS)] = {}

    @property
    def needed(self) -> dict[str, int]:
        """The blobs that its work reads, by digest, with their sizes; without their patches."""
        named = {ref.digest: ref.size for ref in self.blobs.values()}
        return named | {relay.digest: relay.size for relay in self.relays}


class Reply(Message):
    """A device's answer to a task.

    Attributes:
        bases: digest of each blob that it was made from, by the role that the task gave it.
        status: ``ok``; ``refused`` when the device will not (its policy, its data); ``failed``
            when it tried and could not.
        reason: why, when not ok.
        samples: how many samples the answer rests on; its weight in a mean.
        metrics: numbers about the training, such as ``loss``.
        blobs: the blobs of the answer, by role, such as ``delta``.
        relays: the blobs for other devices, by device; the coordinator does not decode it.
        inline: the bytes of small blobs, by digest.
        nonce: the task's.
        cost: seconds and bytes of the task's work.
    """

    kind = "reply"
    run: Word
    exchange: Word
    index: Count
    device: Name
    session: Session
    bases: Annotated[dict[Word, Digest], Field(max_length=256)]
    status: Literal["ok", "refused", "failed"]
    reason: Text = ""
    samples: Count = 0
    metrics: dict[MetricName, float] = {}
    blobs: Annotated[dict[Word, BlobRef], Field(max_length=256)] = {}
    relays: Annotated[dict[Name, SentRelay], Field(max_length=limits.MAX_RELAYS)] = {}
    inline: Annotated[dict[Digest, bytes], Field(max_length=limits.MAX_INLINE)] = {}
    nonce: Nonce = ""
    cost: Annotated[WorkCost, Since(7)] = WorkCost()

    @property
    def needed(self) -> dict[str, int]:
        """The blobs that it names, by digest, with their sizes."""
        named = {ref.digest: ref.size for ref in self.blobs.values()}
        return named | {sent.digest: sent.size for sent in self.relays.values()}


class Receipt(Message):
    """The outcome of a reply.

    Attributes:
        outcome: ``accepted``, ``late`` (its exchange was closed), ``rejected`` (it failed a check).
        reason: why it was not accepted.
    """

    kind = "receipt"
    exchange: Word
    outcome: Literal["accepted", "late", "rejected"]
    reason: Text = ""


class Cancel(Message):
    """Stop working on an exchange; its reply is no longer needed."""

    kind = "cancel"
    exchange: Word


class Need(Message):
    """Ask for chunks of a blob.

    Attributes:
        digest: the blob.
        first: true for "I hold none of it": such a request may be answered by a broadcast.
        chunks: the missing chunks by number, a few at a time; empty when ``first``.
    """

    kind = "need"
    digest: Digest
    first: bool
    chunks: Annotated[tuple[Count, ...], Field(max_length=256)] = ()


class Chunk(Message):
    """One piece of a blob.

    Attributes:
        digest: names the blob.
        index: number of the piece, from 0.
    """

    kind = "chunk"
    digest: Digest
    index: Annotated[int, Field(ge=0, lt=limits.MAX_CHUNKS)]
    data: Annotated[bytes, Field(min_length=1, max_length=limits.CHUNK_BYTES)]


class Birth(Message):
    """A device is there, with its description. Retained; its will says ``lost``.

    Attributes:
        session: of this agent process; a will of another session is stale.
        status: ``online``, or ``lost`` in the will.
        agent, torch, accelerator, hardware: versions and names to show.
        samples: training samples on the device.
        held_out: samples that it holds out, on which it tests a model.
        labels: number of them with each label; empty if the device does not share it.
        classes: number of labels that its data can hold, or of numbers in a target.
        class_names: names of those labels, label 0 first; empty when they have no names.
        shape: shape of one input.
        channels: mean and standard deviation of each channel of the inputs; empty if not shared.
        refuses: the data that its owner does not let leave it: ``means``, averages of samples;
            ``mixes``, mixes of single samples; ``labels``, their counts.
        data: a word of the device's own that changes when its samples do; empty if not shared.
        ignored: files of its data that it cannot use.
        revision: how often this agent process has read its data again; of two births, the greater
            one holds.
        protocol: version that the device speaks; version 6 does not state it.
    """

    kind = "birth"
    introduces = True
    session: Session
    status: Literal["online", "lost"]
    agent: Word = ""
    torch: Word = ""
    accelerator: Word = ""
    hardware: Word = ""
    samples: Count = 0
    held_out: Count = 0
    labels: Annotated[tuple[Count, ...], Field(max_length=limits.MAX_ITEMS)] = ()
    classes: Count = 0
    class_names: ClassNames = ()
    shape: Annotated[tuple[Count, ...], Field(max_length=limits.MAX_DIMENSIONS)] = ()
    channels: Annotated[
        tuple[tuple[float, float], ...], Field(max_length=MAX_CHANNELS), Since(7)
    ] = ()
    refuses: Annotated[tuple[Word, ...], Field(max_length=16), Since(7)] = ()
    data: Word = ""
    ignored: Count = 0
    revision: Count = 0
    protocol: Annotated[Count, Since(7)] = 6


class Progress(Message):
    """The current activity of a device.

    Attributes:
        fraction: how much of the state's work is done, 0 to 1.
        exchange: the one that it works on, if any.
        reason: why it is paused or failed.
        may_train: whether its owner's limits let it train now; if not, it is not asked.
        resumes_in: seconds until they may let it, at the earliest; None if they are not known.
    """

    kind = "progress"
    session: Session
    state: DeviceState
    fraction: Annotated[float, Field(ge=0, le=1)] = 0.0
    exchange: Word = ""
    reason: Text = ""
    may_train: Annotated[bool, Since(7)] = True
    resumes_in: Annotated[
        Annotated[float, Field(ge=0, le=limits.MAX_DEADLINE)] | None, Since(7)
    ] = None


class Telemetry(Message):
    """A device's health; a value that the board has no sensor for is None.

    Attributes:
        cpu, gpu: load in percent.
        memory: used memory in bytes.
        memory_total: all memory in bytes.
        temperature: hottest zone in °C.
        power: total draw in W.
        battery: charge in percent.
        sent, received: payload bytes since the agent started.
    """

    kind = "telemetry"
    session: Session
    cpu: float | None = None
    gpu: float | None = None
    memory: Count | None = None
    memory_total: Count | None = None
    temperature: float | None = None
    power: float | None = None
    battery: float | None = None
    sent: Count = 0
    received: Count = 0


class Request(Message):
    """A question or an order from a dashboard or the command line to the coordinator.

    Attributes:
        nonce: names the request; the answer carries it.
        action: such as ``run.start`` or ``snapshot``.
        arguments: the arguments of the action.
        challenge: the coordinator's answer to a ``challenge`` request just before; an order has to
            return it, and a question leaves it empty.
    """

    kind = "request"
    introduces = True
    nonce: Session
    action: Word
    arguments: dict[str, Any] = {}
    challenge: Nonce = ""


class Response(Message):
    """The coordinator's answer.

    Attributes:
        nonce: of the request.
        body: zstd-compressed JSON: the result, or ``{"error": …, "exit_code": …}``.
        part, parts: a long body travels in several answers.
    """

    kind = "response"
    introduces = True
    nonce: Session
    ok: bool
    body: bytes
    part: Annotated[int, Field(ge=0)] = 0
    parts: Annotated[int, Field(ge=1, le=1024)] = 1


class EventMessage(Message):
    """One event, as in ``events.jsonl``.

    Attributes:
        session: of the coordinator; numbers start again with a new one.
        number: counts up by one; a gap tells a watcher to ask for the snapshot again.
        event: the event's fields.
    """

    kind = "event"
    session: Session
    number: Count
    event: dict[str, Any]


MESSAGES: tuple[type[Message], ...] = (
    CoordinatorState,
    Task,
    Reply,
    Receipt,
    Cancel,
    Need,
    Chunk,
    Birth,
    Progress,
    Telemetry,
    Request,
    Response,
    EventMessage,
)
