"""Report what the agent is doing: to the coordinator, in its status file, and in its log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from device_agent.status_file import write_status_file
from edgefed.clock import Clock, timestamp
from edgefed.config.address import Address
from edgefed.errors import StorageError
from edgefed.wire.messages import Birth, DeviceState, Progress, Receipt

log = logging.getLogger(__name__)


class ProgressReporter:
    """Knows the agent's state; owned by one thread.

    Args:
        device, fleet: who says it.
        birth: of this life.
        address: the broker.
        folder: where the status file is.
        clock: for the status file.
        publish: sends a progress message; does nothing while the broker is away.
    """

    def __init__(
        self,
        device: str,
        fleet: str,
        birth: Birth,
        address: Address,
        folder: Path,
        clock: Clock,
        publish: Callable[[Progress], None],
    ) -> None:
        self._device = device
        self._fleet = fleet
        self._birth = birth
        self._address = address
        self._folder = folder
        self._clock = clock
        self._publish = publish
        self._progress = Progress(session=birth.session, state="idle")
        self._posted: tuple[str, str, str, int, bool] | None = None
        self._dropped = 0
        self._was_down = False

    def tell(
        self,
        state: DeviceState,
        connected: bool,
        *,
        fraction: float = 0.0,
        exchange: str = "",
        reason: str = "",
    ) -> None:
        """Take on a state and say so."""
        self._progress = Progress(
            session=self._birth.session,
            state=state,
            fraction=1.0 if state in ("upload", "done") else fraction,
            exchange=exchange,
            reason=reason[:1000],
        )
        self.repeat(connected)

    def connected(self) -> None:
        """Say that the broker is there, for the first time or again."""
        restored = "connection to the broker restored"
        log.info("%s", restored if self._was_down else "connected to the broker")
        self._was_down = False
        self.repeat(connected=True)

    def disconnected(self, reason: str) -> None:
        """Say that the broker is away."""
        log.warning("connection to the broker lost: %s; reconnecting", reason)
        self._was_down = True
        self.repeat(connected=False)

    def repeat(self, connected: bool) -> None:
        """Say the state again: somebody asked, or the connection came or went."""
        self._publish(self._progress)
        self._post(connected)

    def note_dropped(self, dropped: int, connected: bool) -> None:
        """Show how many messages the inbox had no room for."""
        self._dropped = dropped
        self._post(connected)

    def _post(self, connected: bool) -> None:
        """Write the status file for ``edgefed-agent status`` when something has changed."""
        progress = self._progress
        shown = (progress.state, progress.exchange, progress.reason, self._dropped, connected)
        if shown == self._posted:
            return
        self._posted = shown
        status = {
            "device": self._device,
            "fleet": self._fleet,
            "broker": str(self._address),
            "connected": connected,
            "state": progress.state,
            "exchange": progress.exchange,
            "reason": progress.reason,
            "samples": self._birth.samples,
            "dropped": self._dropped,
            "since": timestamp(self._clock.now()),
        }
        try:
            write_status_file(self._folder, status)
        except StorageError as error:
            log.warning("the status file for edgefed-agent status is stale: %s", error.message)


def log_receipt(receipt: Receipt) -> None:
    """Log what became of a reply."""
    reason = f": {receipt.reason}" if receipt.reason else ""
    level = logging.WARNING if receipt.outcome == "rejected" else logging.INFO
    log.log(level, "reply to %s %s%s", receipt.exchange, receipt.outcome, reason)
