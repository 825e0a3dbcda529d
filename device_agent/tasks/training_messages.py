"""Messages between an agent and its training process, as MessagePack.

The process runs the model's code, which may be a user's: nothing that it sends is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgpack

from edgefed.wire.envelope import decode, encode
from edgefed.wire.limits import MAX_BLOB_BYTES
from edgefed.wire.messages import Task
from edgefed.wire.rollout_messages import ModelOutcome
from edgefed.wire.tensors import packed_pieces, unpack
from edgefed.worker.outcomes import Outcome

if TYPE_CHECKING:
    from edgefed.algorithms.interface.device_side import LedgerEntry
    from edgefed.learn.base.types import Tensors

PAUSE = "pause"
"""The kind of a message that pauses the task at work or, with ``on`` false, lets it go on."""

Piece = bytes | memoryview
"""A part of an outcome's bytes."""


@dataclass(frozen=True)
class TrainingOrder:
    """A task to train, with the state that its device has stored.

    Attributes:
        task: the question; its blobs are in the device's folder.
        private: digest of the blob with the run's private state; empty without one.
        device_state: digests of the blobs of state across runs, by group.
        ledger: entries of the device's ledger.
    """

    task: Task
    private: str = ""
    device_state: Mapping[str, str] = field(default_factory=dict)
    ledger: tuple[LedgerEntry, ...] = ()

    @property
    def name(self) -> str:
        """The exchange, which names the order to the training process."""
        return self.task.exchange


@dataclass(frozen=True)
class Progressed:
    """A share of a task's work is done."""

    exchange: str
    fraction: float


@dataclass(frozen=True)
class TrainingDone:
    """The outcome of a task's work."""

    task: Task
    outcome: Outcome


@dataclass(frozen=True)
class ModelTest:
    """An order to test an offered model and to write its files.

    Attributes:
        name: of this attempt; of no other one, and of no exchange.
        model: path of the model file.
        current: path of the file of the model in use; empty for none.
        draft: folder for the files.
        formats: to write.
        tolerance: by which the model may be worse than the one in use.
    """

    name: str
    model: str
    current: str
    draft: str
    formats: tuple[str, ...]
    tolerance: float


@dataclass(frozen=True)
class ModelChecked:
    """The outcome of a ``ModelTest``.

    Attributes:
        name: of the test.
        outcome: ``installed`` if the model may be: its files are in the draft folder.
        description: of the model, with its files by format.
        reason, metric, score, before: as of ``ModelAnswer``.
    """

    name: str
    outcome: ModelOutcome
    reason: str = ""
    metric: str = ""
    score: float | None = None
    before: float | None = None
    description: Mapping[str, Any] = field(default_factory=dict)


MODEL_FILES = {
    "safetensors": "model.safetensors",
    "torch-export": "model.pt2",
    "onnx": "model.onnx",
    "tensorrt": "model.engine",
}
"""The file of each format in a model's folder."""


def packed(kind: str, **fields: Any) -> bytes:
    """Return a message of a kind, with plain values."""
    data: bytes = msgpack.packb({"kind": kind, **fields})
    return data


def unpacked(data: bytes) -> dict[str, Any]:
    """Return the kind and the fields of a message.

    Raises:
        ValueError: it is none.
    """
    most = len(data)
    message = msgpack.unpackb(data, max_str_len=most, max_bin_len=most, strict_map_key=True)
    if not isinstance(message, dict) or "kind" not in message:
        raise ValueError("a message without a kind")
    return message


def order_fields(order: TrainingOrder) -> dict[str, Any]:
    """Return an order as plain values."""
    ledger = json.dumps([dict(entry) for entry in order.ledger])
    state = dict(order.device_state)
    return {
        "task": encode(order.task),
        "private": order.private,
        "device_state": state,
        "ledger": ledger,
    }


def order_from(fields: Mapping[str, Any]) -> TrainingOrder:
    """Return the order of ``order_fields``."""
    ledger = tuple(json.loads(fields["ledger"]))
    task = decode(fields["task"], Task)
    return TrainingOrder(task, fields["private"], fields["device_state"], ledger)


def outcome_fields(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain values, with the names of its blobs and groups.

    Raises:
        WireError: ``wire.tensor`` for a group that cannot be packed.
    """
    for name in _GROUPS:
        for arrays in getattr(outcome, name).values():
            next(packed_pieces(arrays))  # what is wrong shows in the first piece
    return {
        **{name: getattr(outcome, name) for name in _PLAIN},
        "metrics": dict(outcome.metrics),
        **{name: list(getattr(outcome, name)) for name in (*_BLOBS, *_GROUPS)},
        "ledger": json.dumps([dict(entry) for entry in outcome.ledger]),
    }


def outcome_pieces(outcome: Outcome) -> Iterator[Piece]:
    """Yield the bytes of an outcome's blobs and groups, as messages that follow the outcome's.

    They are not part of it, since a message is copied several times. An empty piece ends each blob
    and each group.
    """
    for name in _BLOBS:
        for blob in getattr(outcome, name).values():
            yield from (blob, b"") if blob else (b"",)
    for name in _GROUPS:
        for arrays in getattr(outcome, name).values():
            yield from filter(len, packed_pieces(arrays) if arrays else ())
            yield b""


def outcome_from(fields: Mapping[str, Any], next_piece: Callable[[], bytes]) -> Outcome:
    """Return the outcome of ``outcome_fields``.

    Args:
        fields: the outcome's.
        next_piece: returns the next one of the outcome's pieces.

    Raises:
        EdgeFedError, KeyError, TypeError, ValueError: it is none.
    """
    known: dict[str, Any] = {name: fields[name] for name in (*_PLAIN, "metrics")}
    for name in (*_BLOBS, *_GROUPS):
        keys = fields[name]
        if type(keys) is not list or not all(type(key) is str for key in keys):
            raise TypeError(f"{name} has other than a list of names")
        parts = {key: _joined(next_piece) for key in keys}
        in_groups = name in _GROUPS
        known[name] = {key: _unpacked(part) for key, part in parts.items()} if in_groups else parts
    return Outcome(**known, ledger=tuple(json.loads(fields["ledger"])))


_PLAIN = ("status", "reason", "samples", "seconds", "trace")
_BLOBS = ("blobs", "relays")
_GROUPS = ("private", "device_state")


def _joined(next_piece: Callable[[], bytes]) -> bytes:
    """Return the bytes of pieces up to an empty one."""
    pieces, size = list[bytes](), 0
    for piece in iter(next_piece, b""):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BLOB_BYTES:
            raise ValueError(f"pieces of more than {MAX_BLOB_BYTES} bytes")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unpacked(data: bytes) -> Tensors:
    return unpack(data, None, max_bytes=len(data), copied=False) if data else {}
