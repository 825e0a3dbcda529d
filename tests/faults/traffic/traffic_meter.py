"""Count all tasks and chunks that are sent to devices."""

from __future__ import annotations

from dataclasses import dataclass

from edgefed.config.values.address import Address
from edgefed.transport.inbox import Arrival, Incoming
from edgefed.transport.link import Link
from edgefed.wire.envelope import decode
from edgefed.wire.messages import Chunk, Need, Task
from edgefed.wire.topics import Topics


@dataclass(frozen=True)
class Piece:
    """A chunk on its way to devices.

    Attributes:
        round: of the newest task that was seen before it.
        device: who alone gets it; empty for all.
    """

    digest: str
    index: int
    round: int
    device: str


class Meter:
    """Listens to all that a coordinator sends, and to what devices say they lack.

    Attributes:
        tasks: every task seen, repeated ones too.
        pieces: every chunk seen.
        needs: devices that asked for a blob, with its digest.
        begun: those of the ``needs`` that say that the device holds none of it.
    """

    def __init__(self, address: Address, fleet: str) -> None:
        self.tasks: list[Task] = []
        self.pieces: list[Piece] = []
        self.needs: list[tuple[str, str]] = []
        self.begun: list[tuple[str, str]] = []
        self._topics = Topics(fleet)
        root = self._topics.root
        filters = (f"{root}/all/#", f"{root}/down/#", f"{root}/up/+/need")
        self._link = Link(address, "meter", self._take, subscriptions=filters)
        self._link.start_now(10)

    def close(self) -> None:
        """Stop listening."""
        self._link.stop()

    def blobs(self, role: str) -> set[str]:
        """Return the digests that tasks name for a role."""
        return {task.blobs[role].digest for task in self.tasks if role in task.blobs}

    def ways(self, role: str) -> set[str]:
        """Return the digests of all blobs from which devices may get a role's arrays."""
        return {name for t in self.tasks if role in t.blobs for name in t.blobs[role].blobs}

    def _take(self, arrival: Arrival) -> None:
        if not isinstance(arrival, Incoming):
            return
        parsed = self._topics.parse(arrival.topic)
        if parsed is None or not arrival.payload:
            return
        if parsed.leaf == "task":
            self.tasks.append(decode(arrival.payload, Task))
        elif parsed.leaf == "c" and parsed.branch in ("all", "down"):
            number = max((task.round for task in self.tasks), default=0)
            chunk = decode(arrival.payload, Chunk)
            self.pieces.append(Piece(chunk.digest, chunk.index, number, parsed.who))
        elif parsed.leaf == "need" and parsed.branch == "up":
            need = decode(arrival.payload, Need)
            self.needs.append((parsed.who, need.digest))
            if need.first:
                self.begun.append(self.needs[-1])
