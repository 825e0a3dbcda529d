"""Validate a reply before it is merged: its sender, bases, roles, shapes, values and weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from edgefed.algorithms.answer import Answer, Group
from edgefed.algorithms.exchange import ReplyRole
from edgefed.coordinator.evaluation_checks import evaluation_problem
from edgefed.coordinator.fleet import Delivered
from edgefed.coordinator.relay_checks import relay_problem, sent_relays
from edgefed.coordinator.run_records import OpenExchange
from edgefed.errors import DIVERGED, WireError
from edgefed.learn.types import Array, Tensors
from edgefed.wire.codecs import decode
from edgefed.wire.messages import Reply, Task

MAX_COUNT = 2**26
"""Largest magnitude of an integer, such as of batches seen; sums cannot overflow."""

LOST_BLOB = "wire.blob"
"""Code of the error that a blob which had arrived cannot be read."""

LEAST_ROOM = 1 << 20
"""What a reply may always take, in bytes, however small the task was."""

MAX_METRIC = 1e30
"""Largest magnitude of a metric; sums of such over samples stay finite."""


class Rejection(Exception):  # noqa: N818 - a verdict, not an error
    """A reply that may not be merged; the text says why.

    Attributes:
        blamed: whether the device is to blame, so that its trust score falls.
    """

    def __init__(self, reason: str, *, blamed: bool = True) -> None:
        super().__init__(reason)
        self.blamed = blamed


def check(
    delivered: Delivered,
    exchange: OpenExchange,
    reject_reason: Callable[[Answer], str],
    announced_factor: float = 0.0,
) -> Answer:
    """Return the decoded answer.

    Args:
        delivered: what arrived.
        exchange: what was asked, and what an answer to it must look like.
        reject_reason: the algorithm's own check: why it cannot merge an answer, or nothing.
        announced_factor: how many times the samples that its device announced it may count at
            most; 0 for any number.

    Raises:
        Rejection: it is not an answer to this, or must not be merged.
    """
    reply = delivered.reply
    if reply.exchange != exchange.exchange:
        raise Rejection("it answers another exchange", blamed=False)
    task = _task_of(reply, exchange)
    if reply.nonce != task.nonce:
        raise Rejection("it answers another task of this exchange")
    _check_bases(reply, task)
    if reply.samples < 1:
        raise Rejection("it is based on no samples")
    if announced_factor and reply.samples > announced_factor * task.samples:
        raise Rejection(
            f"it counts {reply.samples} samples, more than {announced_factor:g} times the"
            f" {task.samples} that its device announced"
        )
    for name, value in reply.metrics.items():
        if not abs(value) <= MAX_METRIC:  # neither is NaN
            raise Rejection(f"its metric {name} is {value:.3g}")
    if reason := fetch_problem(reply, exchange):
        raise Rejection(reason)
    _check_roles(reply, exchange.reply_roles)
    groups = _read(delivered, task, exchange)
    if exchange.name == "evaluate" and (
        reason := evaluation_problem(reply, groups, task, exchange.held_out.get(reply.device))
    ):
        raise Rejection(reason)
    relayed = sent_relays(reply)
    answer = Answer(reply.device, reply.samples, groups, reply.metrics, relayed=relayed)
    if reason := reject_reason(answer):
        raise Rejection(reason)
    return answer


def _check_bases(reply: Reply, task: Task) -> None:
    for role, ref in task.blobs.items():
        if reply.bases.get(role) != ref.digest:
            raise Rejection(f"it started from other {role} than the task names")
    for role in reply.bases:
        if role not in task.blobs:
            raise Rejection(f"it started from {role}, which the task does not name")


def _check_roles(reply: Reply, roles: Mapping[str, ReplyRole]) -> None:
    for role, wanted in roles.items():
        if role not in reply.blobs and not wanted.optional:
            raise Rejection(f"it does not contain {role}")
    for role in reply.blobs:
        if role not in roles:
            raise Rejection(f"it contains {role}, which was not requested")


def _read(delivered: Delivered, task: Task, exchange: OpenExchange) -> dict[str, Group]:
    """Return the decoded arrays by role; all roles together have the room of one answer."""
    groups: dict[str, Group] = {}
    max_reply_bytes = max(exchange.max_reply_bytes, 2 * max(_sent(task), LEAST_ROOM))
    for role, ref in delivered.reply.blobs.items():
        wanted = exchange.reply_roles[role]
        try:
            blob = delivered.read(ref.digest)
            arrays = decode(blob, wanted.tensors, max_bytes=max_reply_bytes)
        except WireError as error:
            lost = error.code == LOST_BLOB
            raise Rejection(f"{role}: {error.message}", blamed=not lost) from error
        for name, array in arrays.items():
            _check_values(role, wanted, name, array)
            max_reply_bytes -= array.nbytes
        groups[role] = Group(arrays)
    return groups


def read_role(delivered: Delivered, exchange: OpenExchange, role: str) -> Tensors:
    """Return the arrays of one role of a reply that was checked.

    Raises:
        WireError: ``wire.blob``: its blob is lost.
    """
    blob = delivered.read(delivered.reply.blobs[role].digest)
    return decode(blob, exchange.reply_roles[role].tensors)


def _task_of(reply: Reply, exchange: OpenExchange) -> Task:
    for task in exchange.tasks:
        if task.device == reply.device:
            return task
    raise Rejection("the device was not asked", blamed=False)


def fetch_problem(reply: Reply, exchange: OpenExchange) -> str:
    """Return why none of a reply's blobs is fetched, or nothing.

    Raises:
        Rejection: the device was not asked.
    """
    task = _task_of(reply, exchange)
    named = sum(ref.size for ref in reply.blobs.values())
    if named > max(exchange.max_reply_bytes, 2 * LEAST_ROOM, 2 * _sent(task)):
        return "its blobs are larger than any valid answer"
    return relay_problem(reply, task)


def _sent(task: Task) -> int:
    """Return the bytes of the blobs that a task came with."""
    return sum(ref.size for ref in task.blobs.values())


def _check_values(role: str, wanted: ReplyRole, name: str, array: Array) -> None:
    if array.size == 0:
        return
    floating = np.issubdtype(array.dtype, np.floating)
    most = wanted.largest if floating else MAX_COUNT
    low, high = float(array.min()), float(array.max())
    cause = f"{DIVERGED}: " if wanted.trained and floating else ""
    largest = max(-low, high)
    if not largest <= most:  # nor is NaN, which no codec writes
        raise Rejection(f"{cause}{role} {name} holds {largest:.3g}, more than {most:g}")
