"""The messages between a coordinator and the gateway of a site, and their batches.

A gateway relays for the devices of its site. Each message of, or to, one of them is an unsigned
message inside a batch; the gateway or the coordinator signs the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgpack
import zstandard
from pydantic import Field

from edgefed.errors import WireError
from edgefed.trust.certificates import NAME
from edgefed.wire import limits
from edgefed.wire.diagnostic_messages import LogRequest, LogTail, Ping, Pong
from edgefed.wire.envelope import decode, encode
from edgefed.wire.message_parts import Count, MetricName, Name, Part, Word, WorkCost
from edgefed.wire.messages import (
    Birth,
    Cancel,
    Message,
    Nonce,
    Progress,
    Receipt,
    Reply,
    Session,
    Task,
    Telemetry,
)

MAX_BATCH = 1024
"""Most messages in one batch."""

MAX_BATCH_BYTES = 4 * 1024**2
"""Most bytes of a batch before its compression."""

_PACKED_BYTES = limits.MAX_MESSAGE_BYTES - 4096
"""Most bytes of a compressed batch: a message less its envelope, signature and certificate."""

MAX_SUMMED = 512
"""Most devices in the sum of a site, whose samples and metrics then fit into one message."""

SUM = "sum"
"""The role of the blob of a ``SumReply``."""


class GatewayState(Message):
    """A gateway is there, with its site. Retained; its will says ``lost``.

    Attributes:
        session: of this gateway process.
        status: ``online``, or ``lost`` in the will.
        agent: its version.
        site: the fleet downstream.
    """

    kind = "gateway"
    introduces = True
    session: Session
    status: Literal["online", "lost"]
    agent: Word = ""
    site: Annotated[str, Field(max_length=64)] = ""


class SiteMessages(Message):
    """Messages of, or to, devices behind a gateway.

    Attributes:
        session: of the gateway.
        batch: a zstd frame, from ``pack_batches``; empty asks a gateway to describe all devices.
    """

    kind = "site"
    introduces = True
    session: Session
    batch: Annotated[bytes, Field(max_length=limits.MAX_MESSAGE_BYTES)] = b""


class SumRequest(Message):
    """Ask a gateway to send one sum in place of its devices' replies to an exchange.

    It is sent again whenever the devices change; the last one counts.

    Attributes:
        run, exchange, index: of the tasks.
        total: the most that the answers of the whole cohort may weigh, which sets the grid.
        always: whether to sum in any case; otherwise only where that takes fewer bytes.
        lost_grace: seconds that the sum waits for lost devices if all others have answered; None
            for as long as for any other one.
        seconds: from now until the deadline of the exchange.
        devices: those whose replies are still out, of the site or of an unknown place.
    """

    kind = "sum_request"
    run: Word
    exchange: Word
    index: Count
    total: Annotated[int, Field(ge=1, le=2**53)]
    always: bool
    lost_grace: Annotated[float, Field(ge=0, le=limits.MAX_DEADLINE)] | None
    seconds: Annotated[float, Field(ge=0, le=limits.MAX_DEADLINE)]
    devices: Annotated[tuple[Name, ...], Field(max_length=limits.MAX_ITEMS)]


class SummedAnswer(Part):
    """A device's share in a sum: all of its reply but the update.

    Attributes:
        device: its name.
        samples: how many samples its answer rests on.
        metrics: numbers about its training.
        nonce: of its task.
        cost: seconds and bytes of its work.
    """

    device: Name
    samples: Count
    metrics: dict[MetricName, float]
    nonce: Nonce
    cost: WorkCost = WorkCost()


class SumReply(Reply):
    """The answers of a site's devices in one: the sum of their weighted updates.

    Attributes:
        device, samples, blobs: the first of the devices, all their samples, and the ``sum``.
        answers: of the devices in the sum, by name.
        without: devices that were asked and have not answered; their replies are late from now on.
    """

    kind = "sum_reply"
    since = 7  # its answers tell their cost
    answers: Annotated[tuple[SummedAnswer, ...], Field(min_length=1, max_length=MAX_SUMMED)]
    without: Annotated[tuple[Name, ...], Field(max_length=limits.MAX_ITEMS)] = ()

    @property
    def devices(self) -> list[str]:
        """The devices in the sum."""
        return [answer.device for answer in self.answers]

    @property
    def replies(self) -> tuple[Reply, ...]:
        """The reply of each device, which names the sum as its blob."""
        shared = {name: getattr(self, name) for name in Reply.model_fields}
        shared |= {"relays": {}, "inline": {}}
        return tuple(Reply(**{**shared, **dict(answer)}) for answer in self.answers)


FROM_DEVICES: tuple[type[Message], ...] = (
    *(Birth, Progress, Telemetry, Reply, Pong, LogTail, SumReply),
)
"""Messages of devices that a gateway passes on, and its sums of them."""

TO_DEVICES: tuple[type[Message], ...] = (Task, Receipt, Cancel, Ping, LogRequest, SumRequest)
"""Messages to devices that a gateway passes on, and those to itself."""

SITE_MESSAGES: tuple[type[Message], ...] = (GatewayState, SiteMessages, SumRequest, SumReply)


def pack_batches(messages: Iterable[tuple[str, Message]]) -> Iterator[bytes]:
    """Yield batches that hold the messages of, or to, devices, in their order.

    Raises:
        WireError: ``wire.too_large``: one message does not fit into a batch.
    """
    waiting: list[tuple[str, bytes]] = []
    size = 0
    for device, message in messages:
        payload = encode(message)
        # Never closed while it is empty: a message larger than the limit goes alone
        if waiting and (size + len(payload) > MAX_BATCH_BYTES or len(waiting) == MAX_BATCH):
            yield from _packed(waiting)
            waiting, size = [], 0
        waiting.append((device, payload))
        size += len(payload)
    if waiting:
        yield from _packed(waiting)


def _packed(messages: list[tuple[str, bytes]]) -> Iterator[bytes]:
    """Yield one batch, or the batches of both halves where it is too large compressed."""
    batch = zstandard.ZstdCompressor(level=3).compress(msgpack.packb(messages))
    if len(batch) <= _PACKED_BYTES:
        yield batch
        return
    if len(messages) == 1:
        raise WireError(
            f"A message for a batch has {len(batch)} bytes.",
            code="wire.too_large",
            hint="send large values as a blob",
        )
    half = len(messages) // 2
    yield from _packed(messages[:half])
    yield from _packed(messages[half:])


def unpack_batch(batch: bytes, *expected: type[Message]) -> Iterator[tuple[str, Message, int]]:
    """Yield each message in a batch, after its device's name, with the bytes that it has.

    Raises:
        WireError: ``wire.malformed``: it is no batch, or is too large; as ``envelope.decode``.
    """
    if not batch:
        return
    try:
        inflater = zstandard.ZstdDecompressor(max_window_size=2 * MAX_BATCH_BYTES)
        with inflater.stream_reader(batch) as reader:
            # One byte more tells that it is too large, without reading the rest
            data = reader.read(MAX_BATCH_BYTES + 64 * 1024 + 1)
        if len(data) > MAX_BATCH_BYTES + 64 * 1024:
            raise ValueError("it is too large")
        rows = msgpack.unpackb(
            data,
            use_list=False,
            max_array_len=MAX_BATCH,
            max_str_len=64,
            max_bin_len=limits.MAX_MESSAGE_BYTES,
            max_map_len=0,
            max_ext_len=0,
        )
        pairs = [(device, payload) for device, payload in rows]
        for device, payload in pairs:
            if not (NAME.fullmatch(device) and isinstance(payload, bytes)):
                raise ValueError("it holds something else than messages of devices")
    except (zstandard.ZstdError, ValueError, TypeError, msgpack.UnpackException) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise WireError(f"A batch cannot be read: {reason}.", code="wire.malformed") from error
    # All of it is checked before the first message is handed on
    for device, payload in pairs:
        yield device, decode(payload, *expected), len(payload)
