"""Encode an outcome as a reply: small blobs are part of the message, large ones are referenced."""

from __future__ import annotations

from edgefed.wire.limits import INLINE_BYTES, MAX_INLINE
from edgefed.wire.message_parts import SentRelay
from edgefed.wire.messages import BlobRef, Reply, Task
from edgefed.wire.tensors import digest
from edgefed.worker.outcome import Outcome


def make_reply(task: Task, outcome: Outcome, session: str) -> tuple[Reply, dict[str, bytes]]:
    """Return the reply, and the blobs by digest that the coordinator has to request.

    Args:
        task: the question.
        outcome: of the task.
        session: of this agent process.
    """
    blobs = {role: (digest(blob), blob) for role, blob in outcome.blobs.items()}
    relays = {device: (digest(blob), blob) for device, blob in sorted(outcome.relays.items())}
    inline: dict[str, bytes] = {}
    beside: dict[str, bytes] = {}
    room = INLINE_BYTES
    for name, blob in dict((*blobs.values(), *relays.values())).items():
        if len(blob) <= room and len(inline) < MAX_INLINE:
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
        blobs={role: BlobRef(digest=name, size=len(blob)) for role, (name, blob) in blobs.items()},
        relays={to: SentRelay(digest=name, size=len(blob)) for to, (name, blob) in relays.items()},
        inline=inline,
        nonce=task.nonce,
    )
    return reply, beside
