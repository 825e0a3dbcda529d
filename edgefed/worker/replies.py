"""Encode an outcome as a reply: small blobs are part of the message, large ones are referenced."""

from __future__ import annotations

from edgefed.wire.limits import INLINE_BYTES
from edgefed.wire.messages import BlobRef, Reply, Task
from edgefed.wire.tensors import digest
from edgefed.worker.outcome import Outcome


def make_reply(task: Task, outcome: Outcome, session: str) -> tuple[Reply, dict[str, bytes]]:
    """Return the reply, and the blobs by digest that the coordinator has to ask for.

    Args:
        task: what was asked.
        outcome: what came of it.
        session: this life of the device.
    """
    refs: dict[str, BlobRef] = {}
    inline: dict[str, bytes] = {}
    beside: dict[str, bytes] = {}
    room = INLINE_BYTES
    for role, blob in outcome.blobs.items():
        name = digest(blob)
        refs[role] = BlobRef(digest=name, size=len(blob))
        if len(blob) <= room:
            inline[name] = blob
            room -= len(blob)
        else:
            beside[name] = blob
    reply = Reply(
        run=task.run,
        exchange=task.exchange,
        index=task.index,
        device=task.device,
        session=session,
        bases={role: ref.digest for role, ref in task.blobs.items()},
        status=outcome.status,
        reason=outcome.reason[:1000],
        samples=outcome.samples,
        metrics=dict(outcome.metrics),
        blobs=refs,
        inline=inline,
    )
    return reply, beside
