"""A coordinator that tells alerts while it works."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.algorithms.base import Answer, Exchange, State
from edgefed.algorithms.fedavg import FedAvg
from edgefed.clock import SystemClock
from edgefed.config.alert_settings import AlertSettings
from edgefed.coordinator import alert_watch
from edgefed.coordinator.alert_watch import AlertWatch
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.service import Service
from edgefed.coordinator.service_settings import ServiceSettings
from edgefed.events import alerts
from edgefed.events.alerts import Alert, AlertConditions
from edgefed.events.model import Event
from edgefed.events.snapshot import Snapshot
from tests.coordinator.test_alert_receivers import direct, python, webhook
from tests.coordinator.test_service_orders import plan, running_service
from tests.transport.listening import wait_until

__all__ = ["direct"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and believe at once that a device is lost."""
    monkeypatch.setattr(alert_watch, "EVERY", 0.05)
    monkeypatch.setattr(alerts, "LOST_FOR", 0.0)


@contextmanager
def alerting(broker: MosquittoBroker, folder: Path, settings: AlertSettings) -> Iterator[Service]:
    made = ServiceSettings(broker.address, "review", folder, alerts=settings)
    service = Service(made, SystemClock())
    with running_service(service):
        yield service


def bug(self: FedAvg, state: State, asked: Exchange, answers: Iterable[Answer]) -> State:
    raise RuntimeError("a bug")


def writing(file: Path) -> tuple[str, ...]:
    code = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
    return tuple(python(code, file))


def told_in(file: Path) -> list[dict[str, object]]:
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.mark.mosquitto
def test_a_run_that_fails_is_told_to_command_and_webhook(
    mosquitto: MosquittoBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FedAvg, "merge", bug)
    file = tmp_path / "told"
    with webhook(200) as (address, posted):
        settings = AlertSettings(command=writing(file), webhook=address)
        with alerting(mosquitto, tmp_path / "state", settings) as service:
            run = service.start(plan()).run
            wait_until(lambda: bool(told_in(file) and posted), "the alert")
            (told,) = told_in(file)
            assert posted == [("/alert?t=1", "application/json", told)]
            assert (told["alert"], told["run"], told["fleet"]) == ("run_failed", run, "review")
            assert "a bug" in str(told["text"])
            (view,) = service._journal.snapshot.alerts
            assert (view.alert, view.about) == ("run_failed", run)


@pytest.mark.mosquitto
def test_a_webhook_that_hangs_delays_no_round(mosquitto: MosquittoBroker, tmp_path: Path) -> None:
    let_go = threading.Event()
    with webhook(200, wait=let_go) as (address, posted):
        settings = AlertSettings(webhook=address, round_seconds=1e-6, lost_share=0)
        with alerting(mosquitto, tmp_path, settings) as service:
            run = service.start(plan()).run
            wait_until(lambda: bool(posted), "the alert")
            store = service._store
            wait_until(lambda: store.run(run).status == "finished", "the end of the run")
            let_go.set()
        assert posted[0][2]["alert"] == "no_round"


@pytest.mark.mosquitto
def test_a_command_that_fails_is_a_warning_and_the_run_goes_on(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    settings = AlertSettings(command=(str(tmp_path / "absent"),), round_seconds=1e-6)
    with alerting(mosquitto, tmp_path, settings) as service:
        run = service.start(plan()).run
        wait_until(lambda: service._store.run(run).status == "finished", "the end of the run")
        warning = "the command of an alert cannot be started: No such file or directory"

        def warned() -> bool:
            return ("!", warning) in [(e.mark, e.text) for e in service._journal.snapshot.lines]

        wait_until(warned, "the warning")


@contextmanager
def watching(settings: AlertSettings, journal: EventJournal) -> Iterator[list[Event]]:
    """The alerts of a journal as they become events."""
    heard: list[Event] = []
    journal.listen(lambda event, number: heard.append(event) if event.kind == "alert" else None)
    watch = AlertWatch(settings, journal, SystemClock())
    watch.start()
    try:
        yield heard
    finally:
        watch.stop()


def test_lost_devices_are_told_and_shown_until_they_return() -> None:
    journal = EventJournal("tests", SystemClock())
    with watching(AlertSettings(lost_share=0.5), journal) as heard:
        journal.emit("device", device="cam-1", state="idle", joined=True)
        journal.emit("device", device="cam-2", state="lost")
        wait_until(lambda: bool(journal.snapshot.alerts), "the alert")
        assert [view.text for view in journal.snapshot.alerts] == ["1 of 2 devices lost"]
        journal.emit("device", device="cam-2", state="idle")
        wait_until(lambda: not journal.snapshot.alerts, "the end")
    assert [event.fields["over"] for event in heard] == [False, True]


def test_a_run_that_fails_and_is_resumed_at_once_is_told(tmp_path: Path) -> None:
    journal = EventJournal("tests", SystemClock())
    file = tmp_path / "told"
    with watching(AlertSettings(command=writing(file)), journal) as heard:
        journal.emit("run", run="r-1", status="failed", reason="once")
        journal.emit("run", run="r-1", status="running", reason="")
        wait_until(lambda: len(heard) == 2, "both")
    assert [told["text"] for told in told_in(file)] == ["failed: once"], "told before the end"


def test_a_bug_in_the_conditions_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    look = AlertConditions.look
    seen: list[float] = []

    def broken(self: AlertConditions, snapshot: Snapshot, now: float) -> tuple[Alert, ...]:
        seen.append(now)
        if len(seen) == 1:
            raise KeyError("a bug")
        return look(self, snapshot, now)

    monkeypatch.setattr(AlertConditions, "look", broken)
    journal = EventJournal("tests", SystemClock())
    with watching(AlertSettings(), journal) as heard:
        wait_until(lambda: len(seen) > 1, "another look")
        journal.emit("run", run="r-1", status="failed", reason="")
        wait_until(lambda: bool(heard), "the alert")


def test_watching_costs_no_event_where_nothing_is_wrong() -> None:
    journal = EventJournal("tests", SystemClock())
    with watching(AlertSettings(round_seconds=3600), journal) as heard:
        journal.emit("device", device="cam-1", state="idle", joined=True)
        journal.emit("run", run="r-1", status="running")
    assert (heard, journal.number) == ([], 2)
