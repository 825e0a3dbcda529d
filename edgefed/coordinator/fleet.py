"""The seam between the engine and the devices, real or virtual, that answer its questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from edgefed.algorithms.base import Roster
from edgefed.coordinator.records import OpenExchange
from edgefed.wire.messages import Reply


@dataclass(frozen=True)
class Delivered:
    """A reply that arrived, with its blobs.

    Attributes:
        reply: the message.
        read: bytes of one of its blobs, by digest; read when the reply is merged, not before.
        seconds: from the question to the reply.
        size: payload bytes of the reply and its blobs.
    """

    reply: Reply
    read: Callable[[str], bytes]
    seconds: float
    size: int


Verdict = Literal["accepted", "rejected", "late"]


class Fleet(Protocol):
    """Devices that can be asked.

    Attributes:
        simulated: whether raw data of all devices is at hand.
    """

    simulated: bool

    def roster(self) -> Roster:
        """Return the devices that are there now, sorted by id."""
        ...

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        """Wait until so many devices are there, or time is up, or ``stop``; return who is."""
        ...

    def ask(self, exchange: OpenExchange, stop: Callable[[], bool]) -> Iterator[Delivered]:
        """Put the tasks to their devices and yield replies as they come.

        Ends when every device asked has replied, when the deadline has passed, when the quorum is
        met and only lost devices are out that had their grace, or when ``stop`` says so; closing
        the iterator early means that no more replies are wanted.
        """
        ...

    def verdict(self, reply: Reply, outcome: Verdict, reason: str) -> None:
        """Tell a device what became of its reply; those accepted count towards the quorum."""
        ...

    def closed(self, run: str, through: int) -> None:
        """Tell the devices that replies up to this exchange index may be thrown away."""
        ...

    def traffic(self) -> tuple[int, int]:
        """Return payload bytes to and from devices since the fleet was made."""
        ...
