"""The metrics of a coordinator after events that are counted by hand."""

from __future__ import annotations

from unittest import mock

from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.process.service_metrics import SERVICE_METRICS, ServiceMetrics
from edgefed.process.service_manager import ServiceManager
from edgefed.transport.inbox import InboxCounts
from edgefed.transport.link import Link
from tests.coordinator.light_devices import HandClock

REPLY = {"device": "a", "round": 1, "exchange": "e", "seconds": 1.0, "accepted": 1}
SCORED = {"run": "r-1", "loss": None, "replies": 2, "late": 1, "sent": 9, "received": 8}


def test_events_are_counted_and_states_are_read() -> None:
    clock, link = HandClock(), mock.Mock(spec=Link, sent=5, received=7)
    journal = EventJournal("hall", clock)
    counts = InboxCounts(1, 2, 4, refused={"device x": 3, "user y": 5})
    metrics = ServiceMetrics(journal, lambda: counts, link, ServiceManager({}, clock), clock)
    assert metrics.read()["edgefed_run_active"] == 0
    journal.emit("run", run="r-1", rounds=4, status="running", algorithm="fedavg", model="mlp")
    for device, samples in (("a", 3), ("b", 0), ("c", 5)):
        journal.emit("device", device=device, joined=True, state="idle", samples=samples)
    journal.emit("device", device="c", state="lost", reason="connection broke")
    for outcome in ("accepted", "rejected", "accepted", "late"):
        journal.emit("reply", **{**REPLY, "outcome": outcome})
    for number, seconds in ((1, 2.5), (2, 1.5)):
        journal.emit("round", run="r-1", round=number)
        journal.emit("scored", **SCORED, round=number, accuracy=number / 4, seconds=seconds)
    clock.seconds += 6
    values = metrics.read()
    assert set(values) == {metric.name for metric in SERVICE_METRICS}
    assert values["edgefed_devices"] == {"idle": 2, "lost": 1}
    assert values["edgefed_devices_ready"] == 1  # b has no samples, and c is lost
    assert values["edgefed_replies_total"] == {"accepted": 2, "rejected": 1, "late": 1}
    assert (values["edgefed_rounds_total"], values["edgefed_round_seconds"]) == (2, 1.5)
    assert (values["edgefed_run_round"], values["edgefed_run_rounds"]) == (2, 4)
    assert values["edgefed_run_active"] == 1
    assert values["edgefed_run_score"] == {"accuracy": 0.5}
    assert values["edgefed_payload_bytes_total"] == {"sent": 5, "received": 7}
    assert values["edgefed_inbox_dropped_total"] == {"urgent": 1, "chunks": 2, "latest": 4}
    assert values["edgefed_messages_refused_total"] == 8
    assert values["edgefed_main_loop_age_seconds"] == 6
    problems = values["edgefed_attention"]
    assert isinstance(problems, dict) and sum(problems.values()) > 0
