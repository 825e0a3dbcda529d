"""The outcome of a task on a device: the reply to send, and the state to keep.

Small blobs are part of the reply, large ones are referenced. Error feedback (Seide et al. 2014;
Karimireddy et al. 2019) keeps the encoding error: with C the lossy code and e the memory,

    sent_t = C(delta_t + e_{t-1})        e_t = delta_t + e_{t-1} - sent_t

In buffered rounds an answer may never be merged; its error is then not that of a merged update. It
stays pending until the next task, which names the last question whose answer was merged
(``Task.merged_number``).

An answer also changes the state that a device keeps across runs: named groups of arrays, and a
ledger of releases (``Answer.device_state``, ``Answer.ledger``). Its bounds are checked here; the
agent or the simulator stores it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from edgefed.files.mapped import release
from edgefed.seeds import generator
from edgefed.wire.codecs import CODECS, decode_each
from edgefed.wire.limits import INLINE_BYTES, MAX_INLINE, MAX_RELAYS
from edgefed.wire.message_parts import SentRelay, WorkCost
from edgefed.wire.messages import BlobRef, Reply, Task
from edgefed.wire.tensors import digest, pack, specs_of

if TYPE_CHECKING:  # an agent makes replies and stores this state without torch
    from edgefed.algorithms.interface.answer import Answer, Group
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
    sums = {**arrays}
    for name, old in before.items():
        sums[name] = arrays[name] + old
        release(old)  # until then, a mapped one takes memory
    return sums


def _minus(wanted: Array, sent: Array, given: Array) -> Array:
    """Return the encoding error, in the memory of the sum where that is not the answer's array."""
    difference: Array = np.subtract(wanted, sent, out=None if wanted is given else wanted)
    return difference


PENDING = f"{FEEDBACK}pending/"
OF = f"{FEEDBACK}number"
"""Prefix of the pending errors by role, and the group with the number of their question."""


def errors_before(task: Task, private: Mapping[str, Tensors]) -> dict[str, Tensors]:
    """Return the errors to add to the answer of a task, by ``FEEDBACK`` and role."""
    own = {name: private[name] for name in private if name.startswith(FEEDBACK)}
    of = own.pop(OF, None)
    pending = {name: own.pop(name) for name in [*own] if name.startswith(PENDING)}
    if of is None or int(of["number"]) != task.merged_number:
        return own
    merged = {FEEDBACK + name.removeprefix(PENDING): group for name, group in pending.items()}
    return {**own, **merged}


def errors_after(
    task: Task, before: Mapping[str, Tensors], dropped: Mapping[str, Tensors]
) -> dict[str, Tensors]:
    """Return the errors to keep: those before, and those of the answer, pending if need be."""
    if task.number < 0:
        return {**before, **dropped}
    pending = {PENDING + name.removeprefix(FEEDBACK): group for name, group in dropped.items()}
    of: dict[str, Tensors] = {OF: {"number": np.array(task.number, np.int64)}} if dropped else {}
    return {**before, **pending, **of}


MAX_GROUPS = 64
MAX_NAME = 64
MAX_STATE_BYTES = 512 * 1024**2
"""Most groups of a device, characters of a group's name, and bytes of all arrays together."""

MAX_ENTRIES = MAX_RELAYS
MAX_ENTRY_BYTES = 16 * 1024
MAX_LEDGER = 65_536
"""Most ledger entries of one answer, one for each receiver, bytes of an entry as JSON, and entries
that answers append to a device's ledger."""


@dataclass(frozen=True)
class PersistentState:
    """The state of a device across runs.

    Attributes:
        device_state: groups of arrays by name.
        ledger: one entry for each release, oldest first.
    """

    device_state: Mapping[str, Tensors] = field(default_factory=dict)
    ledger: tuple[LedgerEntry, ...] = ()

    def read_only(self) -> dict[str, Tensors]:
        """Return the groups as read-only arrays: they change with an answer only."""
        return {
            name: {key: _read_only(array) for key, array in arrays.items()}
            for name, arrays in self.device_state.items()
        }

    def after(
        self, device_state: Mapping[str, Tensors], ledger: tuple[LedgerEntry, ...]
    ) -> PersistentState:
        """Return the state after an answer with these changes."""
        groups = {**self.device_state, **device_state}
        return PersistentState(
            {name: arrays for name, arrays in groups.items() if arrays}, (*self.ledger, *ledger)
        )


def checked_changes(state: PersistentState, answer: Answer) -> tuple[LedgerEntry, ...]:
    """Check the changes of an answer; return its ledger entries after a round trip through JSON.

    Raises:
        ValueError: it exceeds a bound, or an entry is not JSON.
        WireError: arrays cannot be stored.
    """
    after = state.after(answer.device_state, answer.ledger)
    if len(after.device_state) > MAX_GROUPS:
        raise ValueError(f"device_state has more than {MAX_GROUPS} groups")
    for name, group in answer.device_state.items():
        if not (0 < len(name) <= MAX_NAME and name.isascii() and name.isprintable()):
            raise ValueError(f"device_state: a name needs 1 to {MAX_NAME} printable characters")
        pack(group)
    arrays = (array for group in after.device_state.values() for array in group.values())
    if sum(array.nbytes for array in arrays) > MAX_STATE_BYTES:
        raise ValueError(f"device_state takes more than {MAX_STATE_BYTES} bytes")
    if len(answer.ledger) > MAX_ENTRIES:
        raise ValueError(f"an answer has more than {MAX_ENTRIES} ledger entries")
    # A ledger without space refuses releases, not training.
    if answer.ledger and len(after.ledger) > MAX_LEDGER:
        raise ValueError(f"the ledger has no space: it keeps {MAX_LEDGER} entries")
    return tuple(_plain(entry) for entry in answer.ledger)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _plain(entry: LedgerEntry) -> LedgerEntry:
    text = json.dumps(dict(entry), allow_nan=False)
    if len(text.encode()) > MAX_ENTRY_BYTES:
        raise ValueError(f"a ledger entry takes more than {MAX_ENTRY_BYTES} bytes")
    plain: dict[str, object] = json.loads(text)
    return plain
