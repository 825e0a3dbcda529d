"""Parts of messages: names, digests, numbers, and references to blobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from edgefed.wire import limits

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
"""An identifier that is safe in a topic: fleet, device, client."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 of a blob, in hexadecimal; the blob's name."""

MetricName = Annotated[str, Field(pattern=limits.METRIC_NAME_PATTERN)]
"""The name of a number about training or a test."""

Word = Annotated[str, Field(max_length=128)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Joules = Annotated[float, Field(ge=0, le=1e15)]


def _bounded_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if sum(len(name.encode()) for name in names) > limits.MAX_CLASS_NAMES_BYTES:
        raise ValueError(f"class names exceed {limits.MAX_CLASS_NAMES_BYTES} bytes")
    return names


ClassName = Annotated[
    str, Field(max_length=limits.MAX_CLASS_NAME, pattern=limits.CLASS_NAME_PATTERN)
]
ClassNames = Annotated[
    tuple[ClassName, ...], Field(max_length=limits.MAX_ITEMS), AfterValidator(_bounded_names)
]
"""Names of labels 0, 1, …; an empty word for a number that no class has."""


@dataclass(frozen=True)
class Since:
    """Metadata of a field with a default that messages have since a protocol version."""

    version: int


class Part(BaseModel):
    """A named part of a message."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Patch(Part):
    """A cheaper way to a blob: the difference to a blob that the receiver may already hold.

    Attributes:
        base: digest of the weights that the patch is added to; None stands for zeros.
        blob: digest of the encoded difference.
        size: bytes of the encoded difference.
    """

    base: Digest | None
    blob: Digest
    size: Annotated[int, Field(gt=0, le=limits.MAX_BLOB_BYTES)]


class BlobRef(Part):
    """The name of a blob, and the ways to obtain it.

    Attributes:
        digest: SHA-256 of the bytes.
        size: number of bytes.
        patches: cheaper ways to the same bytes, newest first: a chain of which each patch leads to
            the base of the one before.
        direct: patches that lead straight to these bytes, from zeros or from an older base.
    """

    digest: Digest
    size: Annotated[int, Field(gt=0, le=limits.MAX_BLOB_BYTES)]
    patches: Annotated[tuple[Patch, ...], Field(max_length=16)] = ()
    direct: Annotated[tuple[Patch, ...], Field(max_length=16)] = ()

    @property
    def blobs(self) -> tuple[str, ...]:
        """Digests of all blobs that a receiver may request."""
        return (self.digest, *(patch.blob for patch in (*self.patches, *self.direct)))


Seconds = Annotated[float, Field(ge=0, le=limits.MAX_DEADLINE)]


class WorkCost(Part):
    """The cost of a task, as its device measured it; 0 where it was not measured.

    Attributes:
        training_seconds: of the steps of training, without waits; of the whole work if it has one
            step or none.
        work_seconds: from the report that the work begins to the reply, with all waits, such as for
            the start of the training process.
        download_seconds: from the request for the first blob that it lacked to the last one's end.
        download_bytes: of these blobs.
        joules: energy that the board took for the work; None without a sensor of its power.
    """

    training_seconds: Seconds = 0.0
    work_seconds: Seconds = 0.0
    download_seconds: Seconds = 0.0
    download_bytes: Count = 0
    joules: Joules | None = None


RelaySize = Annotated[int, Field(gt=0, le=limits.MAX_RELAY_BYTES + limits.MAX_SEAL_BYTES)]


class SentRelay(Part):
    """A blob that a reply sends to another device; only that device reads it.

    Attributes:
        digest: SHA-256 of the bytes.
        size: number of bytes.
    """

    digest: Digest
    size: RelaySize


class DeliveredRelay(Part):
    """A blob that another device sent to the device of a task.

    Attributes:
        exchange: id of the exchange whose reply sent it.
        sender: the other device.
        digest: SHA-256 of the bytes.
        size: number of bytes.
    """

    exchange: Word
    sender: Name
    digest: Digest
    size: RelaySize
