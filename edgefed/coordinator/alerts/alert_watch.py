"""Watch the fleet for alerts, in a thread of its own, and send them."""

from __future__ import annotations

import logging
import queue
import threading
from pathlib import Path

from edgefed.config.fleet.alert_settings import AlertSettings
from edgefed.coordinator.alerts.alert_receivers import AlertCommand, AlertCourier, AlertWebhook
from edgefed.coordinator.alerts.open_alerts import OpenAlerts
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.errors import StorageError
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.alerts import Alert, AlertConditions
from edgefed.process.clock import Clock

log = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds between two looks at the fleet."""


class AlertWatch:
    """Emits alerts as events of the journal, and sends them to the operator's command and webhook.

    Each change of a run's status is examined by itself, so that a run that fails and is resumed at
    once causes an alert too.

    Args:
        settings: conditions of alerts, and their receivers.
        journal: source of the events; takes alerts and failures of receivers.
        clock: measures how long a condition lasts.
        folder: the coordinator's state directory, which holds the alerts of an earlier process that
            are not over; None to keep nothing.

    Raises:
        StorageError: the file of the open alerts cannot be used.
    """

    def __init__(
        self,
        settings: AlertSettings,
        journal: EventJournal,
        clock: Clock,
        folder: Path | None = None,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._open = OpenAlerts(folder)
        journal.begin_with(self._open.in_snapshot)
        self._conditions = AlertConditions(settings, journal.snapshot, self._open.alerts())
        self._couriers: list[AlertCourier] = []
        if settings.command:
            self._add("the command", AlertCommand(settings.command))
        if settings.webhook:
            self._add("the webhook", AlertWebhook(settings.webhook))
        self._changes: queue.SimpleQueue[Snapshot | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._watch, name="alerts", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._journal.listen(self._hear, "run")
        self._thread.start()

    def stop(self) -> None:
        """End; alerts that wait for a receiver are still sent if it takes them soon."""
        self._changes.put(None)
        if self._thread.is_alive():
            self._thread.join()
        for courier in self._couriers:
            courier.stop()
        self._open.close()

    def _add(self, name: str, receiver: AlertCommand | AlertWebhook) -> None:
        self._couriers.append(AlertCourier(name, receiver, self._warn))

    def _warn(self, text: str) -> None:
        self._journal.emit("note", level="warning", text=text)

    def _hear(self, event: Event, number: int) -> None:
        del number
        if "status" in event.fields:
            self._changes.put(self._journal.snapshot)

    def _watch(self) -> None:
        while True:
            try:
                snapshot = self._changes.get(timeout=EVERY)
            except queue.Empty:
                snapshot = self._journal.snapshot
            if snapshot is None:
                return
            try:
                self._look(snapshot)
            except Exception:  # the run is worth more than what is told of it
                log.exception("alerts could not be looked for")

    def _look(self, snapshot: Snapshot) -> None:
        for alert in self._conditions.look(snapshot, self._clock.monotonic()):
            self._journal.emit("alert", **alert.event())
            if not alert.over:
                body = alert.to_json(snapshot.fleet, self._journal.now())
                for courier in self._couriers:
                    courier.give(body)
            self._keep(alert)

    def _keep(self, alert: Alert) -> None:
        """Store the alert for the next process; a full disk prevents no other alert."""
        views = self._journal.snapshot.alerts
        since = next((view.since for view in views if view.alert == alert.name), "")
        try:
            self._open.end(alert) if alert.over else self._open.begin(alert, since)
        except StorageError as error:
            log.warning("an alert may be sent again after a restart: %s", error)
