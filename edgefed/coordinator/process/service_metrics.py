"""Metrics of a coordinator or gateway, from its journal, inbox and connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.events.base.model import UNFINISHED, Event
from edgefed.events.state.attention import attention, devices_there
from edgefed.process.clock import Clock
from edgefed.process.service_manager import ServiceManager
from edgefed.terminal.metrics_server import INFO, LOOP_AGE, Metric, Values
from edgefed.transport.inbox import InboxCounts
from edgefed.transport.link import Link
from edgefed.version import VERSION

SERVICE_METRICS = (
    Metric("edgefed_devices", "Known devices by state.", "gauge", "state"),
    Metric("edgefed_devices_ready", "Devices with which a run can begin."),
    Metric("edgefed_attention", "Problems of fleet and run by severity.", "gauge", "severity"),
    Metric("edgefed_run_active", "1 while a run is in progress, otherwise 0."),
    Metric("edgefed_run_round", "Number of the current round of the last run."),
    Metric("edgefed_run_rounds", "Rounds that the last run is to have."),
    Metric("edgefed_run_score", "Last score of the last run.", "gauge", "score"),
    Metric("edgefed_round_seconds", "Duration of the last finished round."),
    Metric("edgefed_rounds_total", "Finished rounds.", "counter"),
    Metric("edgefed_replies_total", "Replies of devices by outcome.", "counter", "outcome"),
    Metric("edgefed_payload_bytes_total", "Payload bytes of messages.", "counter", "direction"),
    Metric("edgefed_inbox_dropped_total", "Messages lost to a full queue.", "counter", "queue"),
    Metric("edgefed_messages_refused_total", "Messages over a sender's limit.", "counter"),
    LOOP_AGE,
    INFO,
)  # fmt: skip


class ServiceMetrics:
    """Counts events, and reads the state of a service; safe from any thread.

    Args:
        journal: of the service.
        inbox: returns the counts of its inbox.
        link: its connection.
        manager: knows the turns of its main loop.
        clock: for problems that depend on the time.
    """

    def __init__(
        self,
        journal: EventJournal,
        inbox: Callable[[], InboxCounts],
        link: Link,
        manager: ServiceManager,
        clock: Clock,
    ) -> None:
        self._journal, self._inbox, self._link = journal, inbox, link
        self._manager, self._clock = manager, clock
        self._replies: Counter[str] = Counter()
        self._rounds, self._seconds = 0, None
        journal.listen(self._count, "reply", "scored")

    def _count(self, event: Event, number: int) -> None:
        del number
        if event.kind == "reply":
            self._replies[str(event.fields["outcome"])] += 1
        else:
            self._rounds += 1
            self._seconds = event.fields.get("seconds")

    def read(self) -> Values:
        """Return the values now."""
        snapshot, counts = self._journal.snapshot, self._inbox()
        run, now = snapshot.run, self._clock.now()
        problems = Counter(item.severity for item in attention(snapshot, now))
        scores = {"accuracy": run.accuracy, "loss": run.loss} if run else {}
        return {
            "edgefed_devices": Counter(view.state for view in snapshot.devices),
            "edgefed_devices_ready": devices_there(snapshot),
            "edgefed_attention": {word: problems[word] for word in ("alarm", "warning")},
            "edgefed_run_active": float(run is not None and run.status in UNFINISHED),
            "edgefed_run_round": run.round if run else None,
            "edgefed_run_rounds": run.rounds if run else None,
            "edgefed_run_score": {word: at for word, at in scores.items() if at is not None},
            "edgefed_round_seconds": self._seconds,
            "edgefed_rounds_total": self._rounds,
            "edgefed_replies_total": dict(self._replies),
            "edgefed_payload_bytes_total": {
                "sent": self._link.sent,
                "received": self._link.received,
            },
            "edgefed_inbox_dropped_total": {
                "urgent": counts.dropped_urgent,
                "chunks": counts.dropped_chunks,
                "latest": counts.dropped_latest,
            },
            "edgefed_messages_refused_total": sum(counts.refused.values()),
            LOOP_AGE.name: self._manager.age(),
            INFO.name: {VERSION: 1},
        }
