"""Blobs that a task delivers from other devices, and those that its answer sends to others."""

from __future__ import annotations

from collections.abc import Callable, Collection

from edgefed.algorithms.interface.answer import Answer
from edgefed.errors import WireError
from edgefed.wire.messages import Task

ReadRelay = Callable[[str], bytes]
"""Returns the bytes of a blob that another device sent, by digest."""


def no_relays(digest: str) -> bytes:
    """Refuse to read, because no blob was sent."""
    raise WireError(f"Blob {digest[:12]} is not here.", code="wire.blob")


def relays_by_sender(task: Task, read: ReadRelay) -> dict[str, tuple[bytes, ...]]:
    """Return the blobs that a task delivers, by sender, in the order of the task."""
    found: dict[str, tuple[bytes, ...]] = {}
    for relay in task.relays:
        found[relay.sender] = (*found.get(relay.sender, ()), read(relay.digest))
    return found


def without_relays(task: Task, kept: Collection[str]) -> Task:
    """Return a task that delivers these blobs only, by digest."""
    if all(relay.digest in kept for relay in task.relays):
        return task
    relays = tuple(relay for relay in task.relays if relay.digest in kept)
    return task.model_copy(update={"relays": relays})


def check_relays(task: Task, answer: Answer) -> None:
    """Check the blobs of an answer for other devices, as the coordinator does.

    Raises:
        ValueError: the task does not allow it.
    """
    for receiver, data in answer.relays.items():
        if receiver not in task.receivers:
            raise ValueError(f"relays: the task does not name {receiver} as a receiver")
        if not 0 < len(data) <= task.max_relay_bytes:
            most = task.max_relay_bytes
            raise ValueError(f"relays: {len(data)} bytes for {receiver}; it may be 1 to {most}")
