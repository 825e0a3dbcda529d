"""Orders and outcomes as bytes, for workers that are other processes."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgpack

from edgefed.learn.base.types import Tensors
from edgefed.simulator.executors import WorkOrder
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import Task
from edgefed.wire.tensors import pack, unpack
from edgefed.worker.persistent_state import PersistentState
from edgefed.worker.replies import Outcome


def order_bytes(order: WorkOrder) -> bytes:
    """Return an order as bytes: its task as it is on the wire, its arrays packed."""
    persistent = order.persistent
    fields = [
        order.device,
        encode(order.task),
        _packed(order.private),
        _packed(persistent.device_state),
        json.dumps(persistent.ledger),
    ]
    return bytes(msgpack.packb(fields))


def read_order(data: bytes) -> WorkOrder:
    """Return the order that ``order_bytes`` wrote."""
    device, task, private, device_state, ledger = msgpack.unpackb(data)
    persistent = PersistentState(_groups(device_state), tuple(json.loads(ledger)))
    return WorkOrder(device, decode(task, Task), _groups(private), persistent)


def outcome_bytes(outcome: Outcome) -> bytes:
    """Return an outcome as bytes."""
    fields = [
        outcome.status,
        outcome.reason,
        outcome.samples,
        dict(outcome.metrics),
        dict(outcome.blobs),
        _packed(outcome.private),
        _packed(outcome.device_state),
        json.dumps(outcome.ledger),
        dict(outcome.relays),
        outcome.seconds,
        outcome.trace,
    ]
    return bytes(msgpack.packb(fields))


def read_outcome(data: bytes) -> Outcome:
    """Return the outcome that ``outcome_bytes`` wrote."""
    *plain, private, device_state, ledger, relays, seconds, trace = msgpack.unpackb(data)
    status, reason, samples, metrics, blobs = plain
    return Outcome(
        status,
        reason,
        samples,
        metrics,
        blobs,
        _groups(private),
        _groups(device_state),
        tuple(json.loads(ledger)),
        relays,
        seconds,
        trace,
    )


def _packed(groups: Mapping[str, Tensors]) -> dict[str, bytes]:
    return {key: pack(arrays) for key, arrays in groups.items()}


def _groups(packed: Mapping[str, bytes]) -> dict[str, Tensors]:
    return {key: unpack(blob, None, max_bytes=len(blob)) for key, blob in packed.items()}
