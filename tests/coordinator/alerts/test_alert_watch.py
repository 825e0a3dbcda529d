"""A coordinator that tells alerts while it works."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.cli.fleet.coordinator import service_settings
from edgefed.config.fleet.alert_settings import AlertSettings
from edgefed.config.fleet.settings import Settings
from edgefed.coordinator.alerts import alert_watch
from edgefed.coordinator.alerts.alert_watch import AlertWatch
from edgefed.coordinator.alerts.open_alerts import OpenAlerts
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.process.service import Service
from edgefed.coordinator.process.service_settings import ServiceSettings
from edgefed.errors import StorageError
from edgefed.events.base.alert_events import AlertView
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state import alerts
from edgefed.events.state.alerts import Alert, AlertConditions
from edgefed.process.clock import SystemClock
from tests.coordinator.alerts.test_alert_receivers import direct, python, webhook
from tests.coordinator.storage.test_service_orders import plan, running_service
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
            (view,) = service.journal.snapshot.alerts
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
            return ("!", warning) in [(e.mark, e.text) for e in service.journal.snapshot.lines]

        wait_until(warned, "the warning")


@contextmanager
def watching(
    settings: AlertSettings, journal: EventJournal, folder: Path | None = None
) -> Iterator[list[Event]]:
    """The alerts of a journal as they become events."""
    heard: list[Event] = []
    journal.listen(lambda event, number: heard.append(event) if event.kind == "alert" else None)
    watch = AlertWatch(settings, journal, SystemClock(), folder)
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


def views_in(folder: Path) -> tuple[AlertView, ...]:
    with closing(OpenAlerts(folder)) as kept:
        return kept.views()


KILLED = """
import os, signal, sys, time
from pathlib import Path
from edgefed.process.clock import SystemClock
from edgefed.cli.fleet.coordinator import service_settings
from edgefed.config.fleet.alert_settings import AlertSettings
from edgefed.config.fleet.settings import Settings
from edgefed.coordinator.alerts import alert_watch
from edgefed.coordinator.alerts.alert_watch import AlertWatch
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.alerts.open_alerts import OpenAlerts
from edgefed.events.state import alerts

alert_watch.EVERY, alerts.LOST_FOR = 0.05, 0.0
folder = Path(sys.argv[1])
journal = EventJournal("tests", SystemClock())
AlertWatch(AlertSettings(lost_share=0.5), journal, SystemClock(), folder).start()
journal.emit("device", device="cam-1", state="idle", joined=True)
journal.emit("device", device="cam-2", state="lost")
while not OpenAlerts(folder).views():
    time.sleep(0.02)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""A coordinator's watch that is killed once it has told an alert."""


def test_an_open_alert_outlives_a_kill_and_is_not_told_again(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    (kept,) = views_in(tmp_path)
    journal = EventJournal("tests", SystemClock())
    settings = AlertSettings(lost_share=0.5, command=writing(tmp_path / "told"))
    with watching(settings, journal, tmp_path) as heard:
        assert journal.snapshot.alerts == (kept,), "shown with the time at which it began"
        journal.emit("device", device="cam-2", state="lost")
        journal.emit("device", device="cam-1", state="idle", joined=True)
        time.sleep(0.3)  # some looks
        assert heard == []
        journal.emit("device", device="cam-2", state="idle")
        wait_until(lambda: bool(heard), "the end")
    assert [event.fields["over"] for event in heard] == [True]
    assert told_in(tmp_path / "told") == []
    assert views_in(tmp_path) == ()


def test_open_alerts_are_kept_by_name_and_unknown_ones_are_left_out(tmp_path: Path) -> None:
    kept = OpenAlerts(tmp_path)
    kept.begin(Alert("no_round", "slow", "r-1", occurrence="3"), "2026-03-04T14:02:32Z")
    kept.begin(Alert("lost_devices", "1 of 2 devices lost"), "2026-03-04T14:02:31Z")
    kept.begin(Alert("lost_devices", "2 of 2 devices lost"), "2026-03-04T14:02:33Z")
    kept.begin(Alert("of_later", "new"), "")  # type: ignore[arg-type]
    kept.close()
    assert [view.text for view in views_in(tmp_path)] == ["slow", "2 of 2 devices lost"]
    again = OpenAlerts(tmp_path)
    (slow,) = [alert for alert in again.alerts() if alert.name == "no_round"]
    assert slow == Alert("no_round", "slow", "r-1", occurrence="3")
    again.end(slow)
    assert [alert.name for alert in again.alerts()] == ["lost_devices"]
    again.close()


def test_a_full_disk_costs_no_alert(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(self: OpenAlerts, alert: Alert, since: str) -> None:
        raise StorageError("No space left.", code="disk.full", hint="")

    monkeypatch.setattr(OpenAlerts, "begin", full)
    journal = EventJournal("tests", SystemClock())
    with watching(AlertSettings(lost_share=0.5), journal, tmp_path) as heard:
        journal.emit("device", device="cam-1", state="lost", joined=True)
        journal.emit("run", run="r-1", status="failed", reason="once")
        wait_until(lambda: len(heard) == 2, "both")


@pytest.mark.mosquitto
def test_a_coordinator_that_starts_again_shows_the_alert_and_tells_it_once(
    mosquitto: MosquittoBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FedAvg, "merge", bug)
    settings = AlertSettings(command=writing(tmp_path / "told"))
    with alerting(mosquitto, tmp_path / "state", settings) as service:
        service.start(plan())
        wait_until(lambda: bool(told_in(tmp_path / "told")), "the alert")
        (before,) = service.journal.snapshot.alerts
    with alerting(mosquitto, tmp_path / "state", settings) as service:
        time.sleep(0.5)  # some looks
        assert service.journal.snapshot.alerts == (before,)
    assert len(told_in(tmp_path / "told")) == 1


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


def test_a_gateway_does_not_wait_for_the_ends_of_rounds(tmp_path: Path) -> None:
    settings = Settings(state=tmp_path, alerts=AlertSettings(round_seconds=5.0))
    for gateway, seconds in (("", 5.0), ("hall-2", 0.0)):
        made = service_settings(settings, SystemClock(), gateway)
        assert made.alerts.round_seconds == seconds
