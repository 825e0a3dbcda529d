"""The outcome of a task on a device, and its encoding as a reply with blobs.

Small blobs are part of the message, large ones are referenced. Error feedback (Seide et al. 2014;
Karimireddy et al. 2019) keeps the encoding error: with C the lossy code and e the memory,

    sent_t = C(delta_t + e_{t-1})        e_t = delta_t + e_{t-1} - sent_t
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from edgefed.seeds import generator
from edgefed.wire.codecs import CODECS, decode_each
from edgefed.wire.limits import INLINE_BYTES, MAX_INLINE
from edgefed.wire.message_parts import SentRelay, WorkCost
from edgefed.wire.messages import BlobRef, Reply, Task
from edgefed.wire.tensors import digest, specs_of

if TYPE_CHECKING:  # an agent makes replies without torch
    from edgefed.algorithms.interface.answer import Group
    from edgefed.algorithms.interface.device_side import LedgerEntry
    from edgefed.learn.base.types import Array, Tensors

FEEDBACK = "feedback/"
"""Prefix of the private state with the encoding errors, by role."""

UNMEASURED = WorkCost()


@dataclass(frozen=True)
class Outcome:
    """An answer, encoded, and the private state that goes with it.

    Attributes:
        status, reason, samples, metrics: as in the wire's ``Reply``.
        blobs: encoded arrays by role.
        private: replaces the device's private state when, and only when, the answer is kept.
        device_state, ledger: changes of the device's state across runs, committed with the answer;
            see ``Answer``.
        relays: bytes for other devices, by device.
        seconds: of the steps of training, without waits; of the whole work if it has one step or
            none; 0 if not measured. Two outcomes of the same work are equal.
        trace: traceback of a failure; it does not leave this machine.
    """

    status: Literal["ok", "refused", "failed"]
    reason: str = ""
    samples: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    private: Mapping[str, Tensors] = field(default_factory=dict)
    device_state: Mapping[str, Tensors] = field(default_factory=dict)
    ledger: tuple[LedgerEntry, ...] = ()
    relays: Mapping[str, bytes] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)
    trace: str = field(default="", compare=False)


def make_reply(
    task: Task, outcome: Outcome, session: str, cost: WorkCost = UNMEASURED
) -> tuple[Reply, dict[str, bytes]]:
    """Return the reply, and the blobs by digest that the coordinator has to request.

    Args:
        task: the question.
        outcome: of the task.
        session: of this agent process.
        cost: of the work; a virtual device's is not part of its reply.
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
        cost=cost,
    )
    return reply, beside


def encode_groups(
    groups: Mapping[str, Group],
    codec: str,
    seed: int,
    memory: dict[str, Tensors] | None,
) -> tuple[dict[str, bytes], dict[str, Tensors]]:
    """Return the encoded groups by role, and the new memory.

    Args:
        groups: of the algorithm's answer.
        codec: the task's codec, for groups that name none.
        seed: of the task; stochastic rounding draws from it.
        memory: encoding errors so far, or None where the recipe has no error feedback. Those that
            are added to a group are taken out, to free their memory.
    """
    blobs: dict[str, bytes] = {}
    dropped: dict[str, Tensors] = {}
    for role, group in groups.items():
        name = group.codec or codec
        feed_back = memory is not None and group.codec is None and name != "fp32"
        before = memory.pop(FEEDBACK + role, None) if feed_back and memory is not None else None
        wanted = _plus(group.arrays, before)
        del before
        blobs[role] = CODECS[name].encode(wanted, generator(seed, "uplink", role))
        if feed_back:
            dropped[FEEDBACK + role] = {
                key: _minus(wanted[key], sent, group.arrays[key])
                for key, sent in decode_each(blobs[role], specs_of(wanted))
                if sent.dtype.kind == "f"
            }
    return blobs, dropped


def _plus(arrays: Tensors, before: Tensors | None) -> Tensors:
    """Add the earlier encoding errors; a memory of other shapes belongs to another model."""
    if before is None or any(
        name not in arrays or arrays[name].shape != old.shape for name, old in before.items()
    ):
        return arrays
    return {
        name: array + before[name] if name in before else array for name, array in arrays.items()
    }


def _minus(wanted: Array, sent: Array, given: Array) -> Array:
    """Return the encoding error, in the memory of the sum where that is not the answer's array."""
    difference: Array = np.subtract(wanted, sent, out=None if wanted is given else wanted)
    return difference
