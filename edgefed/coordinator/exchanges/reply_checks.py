"""Validate a reply before it is merged: its sender, bases, roles, shapes, values and relays."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from edgefed.algorithms.composed.evaluation_reply import (
    ACCURACY_BEFORE,
    CONFUSION,
    COUNTS,
    DENOMINATOR,
    LOSS_BEFORE,
    NUMERATOR,
    TOP_K_HITS,
    measures_of_task,
)
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.exchange import Relay, ReplyRole
from edgefed.config.recipes.user_functions import metric_name
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import DIVERGED, WireError
from edgefed.evaluation.confusion import MAX_SAMPLES, Confusion, counts_problem
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.training.user_losses import is_user_loss
from edgefed.terminal.units import counted
from edgefed.wire import limits
from edgefed.wire.codecs import decode
from edgefed.wire.messages import Reply, Task

MAX_COUNT = 2**26
"""Largest magnitude of an integer, such as of batches seen; sums cannot overflow."""

LOST_BLOB = "wire.blob"
"""Code of the error that a blob which had arrived cannot be read."""

LEAST_ROOM = 1 << 20
"""Bytes that a reply may always take, even for a small task."""

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
        delivered: the reply.
        exchange: the question, and the required form of its answers.
        reject_reason: the algorithm's own check: why it cannot merge an answer, or nothing.
        announced_factor: most samples that a reply may count, as a multiple of the samples that its
            device announced; 0 for any number.

    Raises:
        Rejection: it is not an answer to this, or must not be merged.
    """
    reply = delivered.reply
    task = check_stated(reply, exchange, announced_factor)
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


def check_stated(reply: Reply, exchange: OpenExchange, announced_factor: float = 0.0) -> Task:
    """Check all that a reply states beside its blobs, and return the task that it answers.

    Raises:
        Rejection: it is not an answer to this task, or counts or measures something impossible.
    """
    # Another exchange is no fault of the device: its reply may have crossed the closing
    if reply.exchange != exchange.exchange:
        raise Rejection("it answers another exchange", blamed=False)
    task = _task_of(reply, exchange)
    if reply.nonce != task.nonce:
        raise Rejection("it answers another task of this exchange")
    _check_bases(reply, task)
    if reply.samples < 1:
        raise Rejection("it is based on no samples")
    # The factor is 0 for any number; counts weigh in the mean, so an inflated one is bounded
    if announced_factor and reply.samples > announced_factor * task.samples:
        raise Rejection(
            f"it counts {reply.samples} samples, more than {announced_factor:g} times the"
            f" {task.samples} that its device announced (checks.announced_factor)"
        )
    for name, value in reply.metrics.items():
        if not abs(value) <= MAX_METRIC:  # neither is NaN
            raise Rejection(f"its metric {name} is {value:.3g}")
    return task


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
    # A small task with a large answer has LEAST_ROOM, whatever the exchange allows
    max_reply_bytes = max(exchange.max_reply_bytes, 2 * max(_sent(task), LEAST_ROOM))
    for role, ref in delivered.reply.blobs.items():
        wanted = exchange.reply_roles[role]
        try:
            blob = delivered.read(ref.digest)
            arrays = decode(blob, wanted.tensors, max_bytes=max_reply_bytes)
        except WireError as error:
            # A blob that the coordinator lost after its arrival is not the device's fault
            lost = error.code == LOST_BLOB
            raise Rejection(f"{role}: {error.message}", blamed=not lost) from error
        for name, array in arrays.items():
            _check_values(role, wanted, name, array)
            # What one role takes, the others cannot have
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
    task = exchange.task_of.get(reply.device)
    if task is None:
        raise Rejection("the device was not asked", blamed=False)
    return task


def fetch_problem(reply: Reply, exchange: OpenExchange) -> str:
    """Return why none of a reply's blobs is fetched, or nothing.

    Raises:
        Rejection: the device was not asked.
    """
    task = _task_of(reply, exchange)
    named = sum(ref.size for ref in reply.blobs.values())
    # The limits are those of decoding, applied to stated sizes before anything is fetched
    if named > max(exchange.max_reply_bytes, 2 * LEAST_ROOM, 2 * _sent(task)):
        return "its blobs are larger than any valid answer"
    return relay_problem(reply, task)


def _sent(task: Task) -> int:
    """Return the bytes of the blobs that a task came with."""
    return sum(ref.size for ref in task.blobs.values())


def _check_values(role: str, wanted: ReplyRole, name: str, array: Array) -> None:
    # An empty array has no minimum
    if array.size == 0:
        return
    floating = np.issubdtype(array.dtype, np.floating)
    most = wanted.largest if floating else MAX_COUNT
    low, high = float(array.min()), float(array.max())
    cause = f"{DIVERGED}: " if wanted.trained and floating else ""
    # The negative minimum instead of abs, which has no positive for the least integer
    largest = max(-low, high)
    if not largest <= most:  # nor is NaN, which no codec writes
        raise Rejection(f"{cause}{role} {name} holds {largest:.3g}, more than {most:g}")


def evaluation_problem(
    reply: Reply, groups: Mapping[str, Group], task: Task, held_out: int | None = None
) -> str:
    """Return why the numbers of a test do not fit together, or nothing.

    Args:
        reply: the device's.
        groups: its decoded arrays, of the requested shapes.
        task: the question.
        held_out: number of held-out samples that the device announced; None if unknown.
    """
    if reply.samples > MAX_SAMPLES:
        return f"it tested {reply.samples} samples"
    if held_out is not None and reply.samples > held_out:
        announced = counted(held_out, "held-out sample")
        return f"it tested {reply.samples} samples, and its device announced {announced}"
    return _scores_problem(reply, groups, task)


def _scores_problem(reply: Reply, groups: Mapping[str, Group], task: Task) -> str:
    """Return why the scores of a test do not fit together or the task, or nothing."""
    absent = [name for name in _asked_scores(task) if name not in reply.metrics]
    if absent:
        return f"it lacks the {absent[0].replace('_', ' ')}"
    if problem := _metrics_problem(reply, task):
        return problem
    accuracy = reply.metrics.get("accuracy")
    if accuracy is None:
        return "it has counts but no accuracy" if CONFUSION in groups else ""
    if not 0 <= accuracy <= 1:
        return f"its accuracy is {accuracy:.3g}"
    # Devices send a quotient of whole numbers, so rounding restores the hits exactly
    hits = round(accuracy * reply.samples)
    if measures_of_task(task).top_k:
        top = reply.metrics.get(TOP_K_HITS)
        # Whole, from the hits to all samples: the true label is among the top k where it is first
        if top is None or top != int(top) or not hits <= top <= reply.samples:
            return f"it has {top} top-k hits of {reply.samples} samples, {hits} of them right"
    if CONFUSION not in groups:
        return ""
    return counts_problem(Confusion(groups[CONFUSION].arrays[COUNTS]), reply.samples, hits)


def _metrics_problem(reply: Reply, task: Task) -> str:
    """Return why a user's own metric, or the accuracy before fine-tuning, is none; or nothing."""
    for name in map(metric_name, measures_of_task(task).metrics):
        whole = reply.metrics.get(DENOMINATOR + name)
        if NUMERATOR + name not in reply.metrics or whole is None or whole < 0:
            return f"its metric {name} is no fraction"
    if not 0 <= reply.metrics.get(ACCURACY_BEFORE, 0) <= 1:
        return f"its accuracy before fine-tuning is {reply.metrics[ACCURACY_BEFORE]:.3g}"
    return ""


def _asked_scores(task: Task) -> tuple[str, ...]:
    """Return the scores without which a test counts for nothing; a missing one would be a zero.

    Of a user's own loss only the device's targets tell whether there is an accuracy.
    """
    loss = task.training.get("loss", "cross_entropy")
    tuned = task.personal.get("fine_tune_epochs", 0) > 0
    labelled = loss != "squared_error" and not is_user_loss(loss)
    losses = ("loss", LOSS_BEFORE) if tuned else ("loss",)
    accuracies = ("accuracy", ACCURACY_BEFORE) if tuned else ("accuracy",)
    return (*losses, *accuracies) if labelled else losses


def relay_problem(reply: Reply, task: Task) -> str:
    """Return why a reply's blobs for other devices are not forwarded, or nothing."""
    for receiver, sent in sorted(reply.relays.items()):
        if receiver == reply.device:
            return "it sends a blob to itself"
        if receiver not in task.receivers:
            return f"it sends a blob to {receiver}, which its task does not name as a receiver"
        # A seal adds its own bytes to what the algorithm counts
        most = task.max_relay_bytes + limits.MAX_SEAL_BYTES  # it may be encrypted
        if sent.size > most:
            return (
                f"its blob for {receiver} has {sent.size:,} bytes, more than "
                f"the {most:,} that it may have"
            )
    return ""


def sent_relays(reply: Reply) -> tuple[Relay, ...]:
    """Return references to the blobs that a reply sends to other devices, sorted by receiver."""
    return tuple(
        Relay(reply.exchange, reply.device, receiver, sent.digest, sent.size)
        for receiver, sent in sorted(reply.relays.items())
    )
