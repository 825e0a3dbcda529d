"""Report to the journal which devices the open exchange waits for, and until when."""

from __future__ import annotations

from datetime import timedelta

from edgefed.clock import Clock, timestamp
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.pending_exchange import PendingExchange
from edgefed.events.snapshot import WaitingView
from edgefed.events.waiting import waiting_in_words

NAMED = 8
"""Devices that an event names; of the others it tells how many there are."""


class WaitingReport:
    """The last report on one exchange.

    An exchange without a quorum is not reported while every device is connected.
    """

    def __init__(self, pending: PendingExchange, journal: EventJournal, clock: Clock) -> None:
        self._pending_exchange = pending
        self._journal = journal
        self._clock = clock
        self._told: tuple[bool, frozenset[str], float] | None = None

    def update(self) -> None:
        """Report changes: the quorum was met, or a device was lost or came back."""
        pending = self._pending_exchange
        quorum = pending.quorum_at is not None
        lost, closes_at = pending.lost_devices(), pending.closes_at()
        if not pending.wanting or not (quorum or lost):
            self.end()
        elif self._told != (quorum, lost, closes_at):
            self._told = (quorum, lost, closes_at)
            self._tell(closes_at)

    def end(self) -> None:
        """Report the end of waiting, if there was any."""
        if self._told is not None:
            self._told = None
            self._journal.emit(
                "exchange", exchange=self._pending_exchange.exchange.exchange, waiting=None
            )

    def close(self) -> None:
        """Report the devices left behind, if the quorum did not wait for the deadline."""
        pending = self._pending_exchange
        lost, online = pending.out()
        self.end()
        if lost and not online and self._clock.monotonic() < pending.deadline:
            named = waiting_in_words(WaitingView(lost=lost[:NAMED], more=len(lost[NAMED:])))
            text = f"round {pending.exchange.round} continues without {named}"
            self._journal.emit("note", level="warning", text=text)

    def _tell(self, closes_at: float) -> None:
        lost, online = self._pending_exchange.out()
        left = timedelta(seconds=closes_at - self._clock.monotonic())
        waiting = {
            "lost": lost[:NAMED],
            "online": online[: max(0, NAMED - len(lost))],
            "more": max(0, len(lost) + len(online) - NAMED),
            "until": timestamp(self._clock.now() + left),
        }
        self._journal.emit(
            "exchange", exchange=self._pending_exchange.exchange.exchange, waiting=waiting
        )
