"""The state of virtual devices as bytes, with which a simulation goes on after a kill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgpack

from edgefed.algorithms.interface.member import Member
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.learn.base.types import Tensors
from edgefed.simulator.serialization import packed_groups, read_groups
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import Reply, Task
from edgefed.worker.outcomes import Outcome, PersistentState


@dataclass(frozen=True)
class KeptState:
    """The state of a device: private state of the run, and state across runs."""

    private: Mapping[str, Tensors] = field(default_factory=dict)
    persistent: PersistentState = field(default_factory=PersistentState)


@dataclass(slots=True)
class VirtualDevice:
    """A device.

    Attributes:
        kept: its state after its last answer.
        answered: the exchange of that answer.
        before: its state before that; a repetition of the exchange begins from there.
        held: digests of the blobs that it was sent; None before the first task.
        received: bytes that it was sent for its last task.
        free_at: the virtual second at which it has done all its tasks; it does one at a time.
    """

    number: int
    member: Member
    kept: KeptState = KeptState()
    answered: str = ""
    before: KeptState = KeptState()
    held: set[str] | None = None
    received: int = 0
    free_at: float = 0.0

    def kept_for(self, exchange: str) -> KeptState:
        """Return the state from which an answer to ``exchange`` begins."""
        return self.before if exchange == self.answered else self.kept

    def keep(self, exchange: str, outcome: Outcome) -> None:
        """Store the state after an answer."""
        self.before = self.kept_for(exchange)
        persistent = self.before.persistent.after(outcome.device_state, outcome.ledger)
        self.kept, self.answered = KeptState(outcome.private, persistent), exchange

    def to_bytes(self) -> bytes:
        """Return its state after its last answer, whose exchange is not repeated."""
        persistent = self.kept.persistent
        fields = [
            packed_groups(self.kept.private),
            packed_groups(persistent.device_state),
            json.dumps(persistent.ledger),
            sorted(self.held or ()),
            self.free_at,
        ]
        return bytes(msgpack.packb(fields))

    def restore(self, data: bytes) -> None:
        """Take the state that ``to_bytes`` returned."""
        private, device_state, ledger, held, self.free_at = msgpack.unpackb(data)
        persistent = PersistentState(read_groups(device_state), tuple(json.loads(ledger)))
        self.kept, self.held = KeptState(read_groups(private), persistent), set(held)


@dataclass
class SharedTask:
    """A task whose reply is read together with those to other exchanges.

    Attributes:
        put_at, deadline: in virtual seconds.
        begun: whether its task was passed to the executor.
        arrival: when its reply arrives, and the reply; None before.
        read: whether its reply was read.
    """

    task: Task
    put_at: float
    deadline: float
    begun: bool = False
    arrival: tuple[float, Delivered] | None = None
    read: bool = False

    @property
    def waits(self) -> bool:
        """Whether its reply can be read."""
        return self.arrival is not None and not self.read

    def place(self) -> tuple[float, str]:
        """Return the place of the reply among all arrivals; ties go by name."""
        assert self.arrival is not None
        return self.arrival[0], self.task.device

    def times(self) -> list[Any]:
        """Return all of it but the task and the reply, for ``restored``."""
        return [self.put_at, self.deadline, self.begun, self.arrival and self.arrival[0]]

    def reply_bytes(self) -> bytes:
        """Return the reply, with its blobs."""
        assert self.arrival is not None
        delivered = self.arrival[1]
        reply = delivered.reply
        blobs = {digest: delivered.read(digest) for digest in reply.needed.keys() - reply.inline}
        numbers = [delivered.seconds, delivered.size, delivered.training, delivered.upload]
        return bytes(msgpack.packb([encode(reply), blobs, *numbers]))

    def restored(self, times: list[Any], reply: bytes | None) -> SharedTask:
        """Return it as it was, but that its reply is read again where it was read before."""
        put_at, deadline, begun, at = times
        known = replace(self, put_at=put_at, deadline=deadline, begun=begun)
        if reply is not None:
            message, blobs, *numbers = msgpack.unpackb(reply)
            decoded = decode(message, Reply)
            everything = {**blobs, **decoded.inline}
            known.arrival = at, Delivered(decoded, everything.__getitem__, *numbers)
        return known


@dataclass(frozen=True)
class FleetState:
    """The state of a fleet of virtual devices between two rounds.

    Attributes:
        devices: of each device that was asked, by its id.
        replies: to shared tasks, by exchange and device.
        times: of shared tasks, by exchange and device.
    """

    devices: Mapping[str, bytes] = field(default_factory=dict)
    replies: Mapping[tuple[str, str], bytes] = field(default_factory=dict)
    times: Mapping[tuple[str, str], list[Any]] = field(default_factory=dict)
