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
from edgefed.worker.outcomes import Outcome, PersistentState


def order_bytes(order: WorkOrder) -> bytes:
    """Return an order as bytes: its task as it is on the wire, its arrays packed."""
    persistent = order.persistent
    fields = [
        order.device,
        encode(order.task),
        packed_groups(order.private),
        packed_groups(persistent.device_state),
        json.dumps(persistent.ledger),
    ]
    return bytes(msgpack.packb(fields))


def read_order(data: bytes) -> WorkOrder:
    """Return the order that ``order_bytes`` wrote."""
    device, task, private, device_state, ledger = msgpack.unpackb(data)
    persistent = PersistentState(read_groups(device_state), tuple(json.loads(ledger)))
    return WorkOrder(device, decode(task, Task), read_groups(private), persistent)


def outcome_bytes(outcome: Outcome) -> bytes:
    """Return an outcome as bytes."""
    fields = [
        outcome.status,
        outcome.reason,
        outcome.samples,
        dict(outcome.metrics),
        dict(outcome.blobs),
        packed_groups(outcome.private),
        packed_groups(outcome.device_state),
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
        read_groups(private),
        read_groups(device_state),
        tuple(json.loads(ledger)),
        relays,
        seconds,
        trace,
    )


def packed_groups(groups: Mapping[str, Tensors]) -> dict[str, bytes]:
    """Return groups of arrays as bytes."""
    return {key: pack(arrays) for key, arrays in groups.items()}


def read_groups(packed: Mapping[str, bytes]) -> dict[str, Tensors]:
    """Return the groups that ``packed_groups`` wrote."""
    return {key: unpack(blob, None, max_bytes=len(blob)) for key, blob in packed.items()}
