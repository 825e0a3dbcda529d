"""An exchange: the questions to a cohort, their payloads, and the format of the answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from edgefed.config.recipes.recipe import ModelSection
from edgefed.config.recipes.sections import CodecName
from edgefed.wire.tensors import TensorSpec

if TYPE_CHECKING:  # an agent names payloads without torch
    from edgefed.learn.base.types import Tensors

FROZEN = "frozen"
"""Role, and name of the payload, of a model's frozen weights: every task that concerns the recipe's
own model has it, beside the payloads of its exchange. No exchange may use it otherwise."""


@dataclass(frozen=True)
class Payload:
    """Arrays to send, by a name that stays the same from exchange to exchange.

    Attributes:
        arrays: by name.
        codec: of the arrays; None for the recipe's downlink codec. A lossy one sends the difference
            from the arrays last sent under this name.
    """

    arrays: Tensors
    codec: CodecName | None = None


@dataclass(frozen=True)
class Relay:
    """A reference to a blob that one device sent to another; the coordinator only forwards it.

    Attributes:
        exchange: id of the exchange in which it was sent; with both devices, it is unique.
        sender, receiver: ids of the devices.
        digest: SHA-256 of the bytes.
        size: number of bytes.
    """

    exchange: str
    sender: str
    receiver: str
    digest: str
    size: int

    def to_json(self) -> dict[str, Any]:
        """Return the reference as a state's ``params`` can hold it."""
        return asdict(self)

    @classmethod
    def from_json(cls, known: Mapping[str, Any]) -> Relay:
        """Return the reference that ``to_json`` wrote."""
        return cls(**known)


@dataclass(frozen=True)
class Question:
    """The question to one device.

    Attributes:
        device: its id.
        samples: number that it announced; the most that its answer may weigh.
        blobs: role in the task to name of a payload; devices may get different ones.
        params: small values.
        receivers: the devices to which its answer may send a blob, one to each.
        relays: blobs sent to this device that the task delivers. ``merge`` sees those that were
            delivered: a blob that the coordinator no longer has is left out.
        seed: of its task, as ``merge`` sees it; before that, 0.
        staleness: rounds that ended between the question and the merge of its answer, as ``merge``
            sees it; see ``staleness_factor``.
    """

    device: str
    samples: int
    blobs: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    receivers: tuple[str, ...] = ()
    relays: tuple[Relay, ...] = ()
    staleness: int = 0
    seed: int = 0


STALENESS_BITS = 8
"""Staleness factors are multiples of 2^-8, so that weighted sums stay exact."""


def staleness_factor(staleness: int) -> float:
    """Return the factor of an answer's update, 1 / sqrt(1 + s), rounded to ``STALENESS_BITS``.

    Nguyen et al., AISTATS 2022 (FedBuff), section 5; for s up to 1,000 it is not zero.
    """
    units: int = 2**STALENESS_BITS
    return float(round(units / math.sqrt(1 + staleness)) / units)


@dataclass(frozen=True)
class ReplyRole:
    """The required form of the arrays of one role of an answer.

    Attributes:
        tensors: names, types and shapes; None where the algorithm's ``reject_reason`` checks them.
        largest: largest magnitude of a real number.
        trained: whether they result from training, so that a value beyond ``largest`` means that
            the training diverged.
        optional: whether an answer may lack the role.
    """

    tensors: Mapping[str, TensorSpec] | None
    largest: float
    trained: bool = False
    optional: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors; 0 where they are not known beforehand."""
        return sum(spec.nbytes for spec in (self.tensors or {}).values())

    def to_json(self) -> dict[str, Any]:
        """Return the role as it is written down with an open exchange."""
        tensors = None
        if self.tensors is not None:
            tensors = [[name, spec.dtype, spec.shape] for name, spec in self.tensors.items()]
        return {
            "tensors": tensors,
            "largest": self.largest,
            "trained": self.trained,
            "optional": self.optional,
        }

    @classmethod
    def from_json(cls, known: Mapping[str, Any]) -> ReplyRole:
        """Return the role that ``to_json`` wrote."""
        tensors = known["tensors"]
        if tensors is not None:
            tensors = {name: TensorSpec(dtype, tuple(shape)) for name, dtype, shape in tensors}
        return cls(tensors, known["largest"], known["trained"], known["optional"])


@dataclass(frozen=True)
class Exchange:
    """One question put to a cohort.

    Attributes:
        name: ``fit``, ``evaluate``, ``mean``, …
        round: the round that it belongs to, counted from 1.
        questions: one for each device asked.
        payloads: the arrays that the questions name.
        wanted: answers after which the exchange closes.
        quorum: answers that suffice when the deadline passes.
        deadline: seconds.
        preparatory: consumes no seed index, so that the draws of other exchanges do not depend on
            it; its answers do not count towards the round.
        reply_roles: the form of each role of an answer; an answer with other roles is rejected.
        model: the network that its tasks concern; None for that of the state (``Algorithm.model``).
            ``merge`` and ``reject_reason`` see the one that the tasks had.
        retired: names of payloads that the run no longer sends; the coordinator and its cache
            forget them before this exchange's payloads are encoded. A name that is sent again
            starts without a previous version.
        max_relay_bytes: the largest blob that an answer may send to another device.
        discarded: blobs between devices that are not to be delivered; the coordinator deletes them
            when it puts the exchange.
        detail: a few words that dashboards show after the name, such as ``conv2, 2 of 4``.
        attempt: how often the algorithm restarted its round; ``rounds.retries`` limits that.
        index: its number in the run, from 0, as ``merge`` sees it.
        task_digest: of its tasks, as ``DeviceTask`` has it; as ``merge`` sees it.
    """

    name: str
    round: int
    questions: tuple[Question, ...]
    payloads: Mapping[str, Payload]
    wanted: int
    quorum: int
    deadline: float
    preparatory: bool = False
    reply_roles: Mapping[str, ReplyRole] = field(default_factory=dict)
    model: ModelSection | None = None
    retired: frozenset[str] = frozenset()
    max_relay_bytes: int = 0
    discarded: tuple[Relay, ...] = ()
    detail: str = ""
    attempt: int = 0
    index: int = 0
    task_digest: bytes = b""


@dataclass(frozen=True)
class Finished:
    """The end of the run: there is no further exchange."""
