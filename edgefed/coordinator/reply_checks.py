"""Every reply is checked before it may touch the model: who, what, how large, how many."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from edgefed.algorithms.base import Answer, Group
from edgefed.coordinator.fleet import Delivered
from edgefed.coordinator.records import OpenExchange
from edgefed.errors import DIVERGED, WireError
from edgefed.learn.types import Array
from edgefed.wire.codecs import decode
from edgefed.wire.messages import Reply, Task
from edgefed.wire.tensors import TensorSpec

MAX_VALUE = 64.0
"""Largest magnitude of a value in a delta; a training that moves a weight further has diverged."""

MAX_OTHER = 1e6
"""Largest magnitude of a value that is no delta, such as of averaged data in their own units."""

MAX_COUNT = 2**26
"""Largest magnitude of an integer in a delta, such as of batches seen; sums cannot overflow."""

LEAST_ROOM = 1 << 20
"""What a reply may always take, in bytes, however small the task was."""

MAX_METRIC = 1e30
"""Largest magnitude of a metric; sums of such over samples stay finite."""


class Rejection(Exception):  # noqa: N818 - a verdict, not an error
    """A reply that may not be merged; the text says why."""


def check(
    delivered: Delivered,
    exchange: OpenExchange,
    specs: Mapping[str, TensorSpec],
    reject_reason: Callable[[Answer], str],
) -> Answer:
    """Return the decoded answer.

    Args:
        delivered: what arrived.
        exchange: what was asked.
        specs: names, types and shapes of a ``delta``.
        reject_reason: the algorithm's own check: why it cannot merge an answer, or nothing.

    Raises:
        Rejection: it is not an answer to this, or must not be merged.
    """
    reply = delivered.reply
    if reply.exchange != exchange.exchange:
        raise Rejection("it answers another exchange")
    task = _task_of(reply, exchange)
    if task.blobs and reply.base not in {ref.digest for ref in task.blobs.values()}:
        raise Rejection("it started from other weights than it was given")
    if exchange.name != "evaluate" and reply.samples < 1:
        raise Rejection("it rests on no samples")
    for name, value in reply.metrics.items():
        if not abs(value) <= MAX_METRIC:  # neither is NaN
            raise Rejection(f"its metric {name} is {value:.3g}")
    if is_too_large(reply, exchange):
        raise Rejection("its blobs are larger than anything that it was asked for")
    groups = _read(delivered, task, specs, exchange.max_reply_bytes)
    if exchange.name == "fit" and "delta" not in groups:
        raise Rejection("it holds no delta")
    answer = Answer(reply.device, reply.samples, groups, reply.metrics)
    if reason := reject_reason(answer):
        raise Rejection(reason)
    return answer


def _read(
    delivered: Delivered, task: Task, specs: Mapping[str, TensorSpec], max_reply_bytes: int
) -> dict[str, Group]:
    """Return the decoded arrays by role; all roles together have the room of one answer."""
    groups: dict[str, Group] = {}
    max_reply_bytes = max(max_reply_bytes, _most(task, specs))
    for role, ref in delivered.reply.blobs.items():
        known = dict(specs) if role == "delta" else None
        try:
            arrays = decode(delivered.read(ref.digest), known, max_bytes=max_reply_bytes)
        except WireError as error:
            raise Rejection(f"{role}: {error.message}") from error
        for name, array in arrays.items():
            _check_values(role, name, array)
            max_reply_bytes -= array.nbytes
        groups[role] = Group(arrays)
    return groups


def _task_of(reply: Reply, exchange: OpenExchange) -> Task:
    for task in exchange.tasks:
        if task.device == reply.device:
            return task
    raise Rejection("the device was not asked")


def is_too_large(reply: Reply, exchange: OpenExchange) -> bool:
    """Whether a reply names more bytes than any answer to its task takes; none is fetched then.

    Raises:
        Rejection: the device was not asked.
    """
    named = sum(ref.size for ref in reply.blobs.values())
    most = max(exchange.max_reply_bytes, 2 * LEAST_ROOM, 2 * _sent(_task_of(reply, exchange)))
    return named > most


def _most(task: Task, specs: Mapping[str, TensorSpec]) -> int:
    """Return the most bytes that all blobs of this task's reply together may decode to."""
    weights = sum(spec.nbytes for spec in specs.values())
    return 2 * max(weights, _sent(task), LEAST_ROOM)


def _sent(task: Task) -> int:
    """Return the bytes of the blobs that a task came with."""
    return sum(ref.size for ref in task.blobs.values())


def _check_values(role: str, name: str, array: Array) -> None:
    if array.size == 0:
        return
    floating = np.issubdtype(array.dtype, np.floating)
    most = MAX_COUNT if not floating else MAX_VALUE if role == "delta" else MAX_OTHER
    low, high = float(array.min()), float(array.max())
    # A training that diverges shows itself in the weights; other roles hold the data's own units.
    cause = f"{DIVERGED}: " if role == "delta" and floating else ""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise Rejection(f"{cause}{role} {name} holds NaN or infinity")
    if max(-low, high) > most:
        raise Rejection(f"{cause}{role} {name} holds {max(-low, high):.3g}, more than {most:g}")
