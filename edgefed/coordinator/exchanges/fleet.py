"""The interface between the engine and the devices, real or virtual."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from edgefed.algorithms.interface.member import Roster
from edgefed.coordinator.exchanges.contributions import Contributions
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.events.base.method_tables import OwnTable
from edgefed.wire.messages import Reply


@dataclass(frozen=True)
class Delivered:
    """A reply that arrived, with its blobs.

    Attributes:
        reply: the message.
        read: bytes of one of its blobs, by digest; read when the reply is merged, not before.
        seconds: from task to reply.
        size: payload bytes of the reply and its blobs.
        training, upload: seconds of the training, and from its end to the arrival of the last
            blob; None where they were not measured.
        parts: of the sum of a site, the share of each of its devices; empty for any other reply.
        problem: why it may not be merged, as was found when it arrived; empty otherwise.
    """

    reply: Reply
    read: Callable[[str], bytes]
    seconds: float
    size: int
    training: float | None = None
    upload: float | None = None
    parts: tuple[Delivered, ...] = ()
    problem: str = ""

    @property
    def replies(self) -> tuple[Reply, ...]:
        """The replies of the devices that it answers for."""
        return tuple(part.reply for part in self.parts) or (self.reply,)


Verdict = Literal["accepted", "rejected", "late"]

Overdue = Literal["late", "lost"]
"""Why an exchange is overdue: its deadline has passed, or its device is lost."""


class Fleet(Protocol):
    """Devices that can be asked.

    Several exchanges may be open at the same time; each has an iterator of replies of its own.
    A device does one task at a time: with several open, those of the exchange put first go first.
    ``ask`` is made of ``put``, ``replies`` and ``drop``; a fleet that derives from this class
    inherits it.

    Attributes:
        simulated: whether raw data of all devices is at hand.
        takes_time: whether answers come later than their questions.
        may_change: whether devices may come and go while nothing else happens.
        contributions: of the devices to the current run; the engine keeps them up to date.
    """

    simulated: bool
    takes_time: bool = True
    may_change: bool = True
    contributions: Contributions

    def roster(self) -> Roster:
        """Return the devices that are there now, sorted by id."""
        ...

    def known(self) -> Roster:
        """Return the devices that are there, have paused or are lost."""
        return self.roster()

    def paused(self) -> Mapping[str, str]:
        """Return why devices that are there are paused, by device; they are not in the roster."""
        return {}

    def belongs(self, device: str) -> bool:
        """Whether a device has not been removed from the fleet."""
        del device
        return True

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        """Wait for enough connected devices, the timeout or ``stop``; return the roster."""
        ...

    def put(self, exchange: OpenExchange, *, shared: bool = False) -> None:
        """Open an exchange: its tasks go to their devices, and its deadline begins.

        Args:
            exchange: the exchange.
            shared: whether its replies are read with ``next_reply``, together with those of others.
        """
        ...

    def next_reply(self, until: float, stop: Callable[[], bool]) -> Delivered | None:
        """Wait for a reply to any exchange that was put as ``shared``, and return it.

        None when there may be something else to do: devices came or went, ``until``, a monotonic
        second, has passed, or ``stop`` returns True. Its exchange stays open.
        """
        del until, stop
        return None

    def overdue(self) -> dict[str, Overdue]:
        """Return the ``shared`` exchanges for which nobody should wait any longer, by id.

        Their deadline has passed, or the device has been lost for longer than its grace.
        """
        return {}

    def postpone(self, seconds: float) -> None:
        """Move the deadlines of the ``shared`` exchanges: nobody looked for so long."""
        del seconds

    def forget(self, exchanges: Collection[str]) -> None:
        """Delete the replies to exchanges that were dropped: they are merged, or never will be."""
        del exchanges

    def replies(self, exchange: OpenExchange, stop: Callable[[], bool]) -> Iterator[Delivered]:
        """Yield the replies to an open exchange as they arrive.

        Ends when every device asked has replied, when the deadline has passed, when the quorum is
        met and only lost devices are missing whose grace is over, when the exchange is dropped, or
        when ``stop`` returns True. Closing the iterator drops nothing: a later one continues from
        there, and replies that arrive meanwhile are kept for it.

        Raises:
            KeyError: the exchange is not open.
        """
        ...

    def drop(self, exchange: OpenExchange, *, put_again: bool = False) -> None:
        """Close an exchange: its further replies are not needed. Nothing happens if it is not open.

        Args:
            exchange: the exchange.
            put_again: whether it is put again later, as after a stop; devices whose replies were
                not read then get no receipt that they are late.
        """
        ...

    def missed_deadline(self, exchange: OpenExchange) -> frozenset[str]:
        """Return the devices that let the deadline of an exchange pass, once it is closed.

        They were connected and not paused from its beginning on, and have not answered. A second
        call returns nothing.
        """
        del exchange
        return frozenset()

    def ask(self, exchange: OpenExchange, stop: Callable[[], bool]) -> Iterator[Delivered]:
        """Put an exchange, yield its replies, and drop it, also when the iterator is closed."""
        # In try, so that closing the iterator early drops the exchange too
        try:
            self.put(exchange)
            yield from self.replies(exchange, stop)
        finally:
            self.drop(exchange, put_again=stop())

    def hold(self, reply: Reply) -> None:
        """Count a reply towards its quorum whose verdict follows when all others are there."""
        del reply

    def verdict(self, reply: Reply, outcome: Verdict, reason: str) -> None:
        """Send a device the verdict on its reply; accepted replies count towards the quorum."""
        ...

    def closed(self, run: str, through: int) -> None:
        """Tell the devices that replies up to this exchange index may be thrown away."""
        ...

    def own_tables(self) -> Iterable[OwnTable]:
        """Return the fleet's own tables, which are shown beside those of the run's method."""
        return (self.contributions,)

    def traffic(self) -> tuple[int, int]:
        """Return payload bytes to and from devices since the fleet was made."""
        ...
