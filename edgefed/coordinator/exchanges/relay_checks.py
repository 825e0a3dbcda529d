"""Check the blobs that a reply sends to other devices, and those that a task delivers."""

from __future__ import annotations

from collections.abc import Collection

from edgefed.algorithms.interface.exchange import Exchange, Question, Relay
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import UsageError
from edgefed.wire import limits
from edgefed.wire.messages import Reply, Task


def relay_problem(reply: Reply, task: Task) -> str:
    """Return why a reply's blobs for other devices are not forwarded, or nothing."""
    for receiver, sent in sorted(reply.relays.items()):
        if receiver == reply.device:
            return "it sends a blob to itself"
        if receiver not in task.receivers:
            return f"it sends a blob to {receiver}, which its task does not name as a receiver"
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


def task_relays(task: Task) -> tuple[Relay, ...]:
    """Return references to the blobs that a task delivers."""
    return tuple(
        Relay(relay.exchange, relay.sender, task.device, relay.digest, relay.size)
        for relay in task.relays
    )


def delivered_relays(opened: OpenExchange, devices: Collection[str]) -> tuple[Relay, ...]:
    """Return references to the blobs that an exchange delivered to these devices."""
    answered = (task for task in opened.tasks if task.device in devices)
    return tuple(relay for task in answered for relay in task_relays(task))


def check_relays(exchange: Exchange) -> None:
    """Check the blobs that an algorithm sends from device to device.

    Raises:
        UsageError: ``algorithm.relay``: it exceeds a limit, delivers a blob to another device than
            its receiver, or the exchange is an evaluation.
    """
    if exchange.max_relay_bytes > limits.MAX_RELAY_BYTES:
        raise _wrong(exchange, f"allows blobs of more than {limits.MAX_RELAY_BYTES:,} bytes")
    for question in exchange.questions:
        if problem := _question_problem(exchange, question):
            raise _wrong(exchange, problem)


def _question_problem(exchange: Exchange, question: Question) -> str:
    device, most = question.device, limits.MAX_RELAYS
    if exchange.name == "evaluate" and (question.receivers or question.relays):
        return "is an evaluation, which sends no blobs from device to device"
    if len(question.receivers) > most:
        return f"names {len(question.receivers)} receivers to {device}; the most are {most}"
    if len(question.relays) > most:
        return f"delivers {len(question.relays)} blobs to {device}; the most are {most}"
    for relay in question.relays:
        if relay.receiver != device:
            return f"delivers a blob for {relay.receiver} to {device}"
    return ""


def _wrong(exchange: Exchange, problem: str) -> UsageError:
    return UsageError(
        f"The algorithm's exchange '{exchange.name}' {problem}.",
        code="algorithm.relay",
        hint="this is an error in the algorithm; tell its author",
    )
