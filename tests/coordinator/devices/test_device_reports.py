"""Reports of many devices share events; none is lost, and none comes after what ended it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from edgefed.coordinator.devices.device_registry import MOST_CHANGES, DeviceRegistry
from edgefed.coordinator.devices.device_reports import EVERY, DeviceReports
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.events.base.model import Event
from edgefed.wire.messages import Birth, Progress, Telemetry
from tests.tui.samples import FakeClock

SESSION = "0123456789abcdef"


class Scene:
    """Reports whose events are kept."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.reports = DeviceReports(self._take, self.clock)

    def _take(self, kind: str, **fields: Any) -> None:
        self.events.append((kind, fields))

    def later(self) -> None:
        self.clock.seconds += EVERY
        self.reports.due()


def test_the_first_report_is_emitted_at_once() -> None:
    scene = Scene()
    scene.reports.add("a", fraction=0.5)
    assert scene.events == [("device", {"device": "a", "fraction": 0.5})]
    assert scene.reports.next_due is None


def test_later_reports_share_an_event_for_each_kind_of_report() -> None:
    scene = Scene()
    scene.reports.add("a", fraction=0.1)
    scene.events.clear()
    for device in "abc":
        scene.reports.add(device, fraction=0.2)
        scene.reports.add(device, power=7.0, gpu=None)
    scene.reports.add("b", fraction=0.3)
    assert scene.events == []
    assert scene.reports.next_due == EVERY
    scene.later()
    assert scene.events == [
        ("roster", {"devices": ["a", "b", "c"], "fraction": [0.2, 0.3, 0.2]}),
        ("roster", {"devices": ["a", "b", "c"], "power": [7.0] * 3, "gpu": [None] * 3}),
    ]
    scene.later()
    assert len(scene.events) == 2


@pytest.mark.parametrize(("names", "left"), [((), ["b"]), (("fraction",), ["a", "b"])])
def test_what_waits_of_a_device_is_left_out(names: tuple[str, ...], left: list[str]) -> None:
    scene = Scene()
    scene.reports.add("z", fraction=0.1)
    scene.events.clear()
    for device in "ab":
        scene.reports.add(device, power=7.0)
    scene.reports.add("a", fraction=0.2)
    scene.reports.drop("a", *names)
    scene.later()
    assert sorted(device for _, fields in scene.events for device in _devices(fields)) == left
    assert all("power" in fields for _, fields in scene.events)


def test_nothing_older_is_emitted_after_a_device_was_dropped_by_another_thread() -> None:
    events: list[str] = []
    emitting, go_on = threading.Event(), threading.Event()

    def emit(kind: str, **fields: Any) -> None:
        emitting.set()
        go_on.wait(10)
        events.append(f"report of {fields['device']}")

    def end() -> None:
        emitting.wait(10)
        reports.drop("a")
        events.append("end of a")

    reports = DeviceReports(emit, FakeClock())
    ender = threading.Thread(target=end)
    reporter = threading.Thread(target=reports.add, args=("a",), kwargs={"fraction": 0.5})
    ender.start()
    reporter.start()
    emitting.wait(10)
    ender.join(0.2)  # time for an end that does not wait
    go_on.set()
    reporter.join(10)
    ender.join(10)
    assert events == ["report of a", "end of a"]


def _devices(fields: dict[str, Any]) -> list[str]:
    return fields["devices"] if "devices" in fields else [fields["device"]]


def _registry() -> tuple[DeviceRegistry, EventJournal, FakeClock, list[Event]]:
    clock, events = FakeClock(), list[Event]()
    journal = EventJournal("plant-a", clock)
    registry = DeviceRegistry(journal, clock)
    for device in ("a", "b"):
        registry.take_birth(device, Birth(session=SESSION, status="online", samples=5))
        registry.take_progress(device, _progress("train", 0.1))
    journal.listen(lambda event, number: events.append(event))
    return registry, journal, clock, events


def _progress(state: Any, fraction: float) -> Progress:
    return Progress(session=SESSION, state=state, fraction=fraction, exchange="e-1")


def test_a_changed_state_is_told_at_once_and_nothing_older_follows() -> None:
    registry, journal, clock, events = _registry()
    clock.seconds += 0.5
    registry.take_progress("b", _progress("train", 0.3))  # emitted
    clock.seconds += 0.1
    registry.take_progress("a", _progress("train", 0.4))  # waits
    registry.take_telemetry("a", Telemetry(session=SESSION, power=7.0))  # waits too
    registry.take_progress("a", _progress("upload", 1.0))
    assert events[-1].fields["state"] == "upload"
    clock.seconds += EVERY
    registry.due()
    view = journal.snapshot.devices[0]
    assert (view.state, view.fraction, view.power) == ("upload", 1.0, 7.0)


def test_many_changes_in_a_second_share_events_except_those_with_a_reason() -> None:
    registry, journal, clock, events = _registry()
    clock.seconds += 2.0
    for number in range(MOST_CHANGES):
        registry.take_progress("a", _progress("upload" if number % 2 else "train", 0.5))
        registry.take_progress("b", _progress("upload" if number % 2 else "train", 0.5))
    alone = [event for event in events if event.kind == "device"]
    assert MOST_CHANGES <= len(alone) <= MOST_CHANGES + 2
    registry.take_progress("a", _progress("failed", 0.5).model_copy(update={"reason": "no room"}))
    assert events[-1].fields["reason"] == "no room"
    clock.seconds += EVERY
    registry.due()
    assert [view.state for view in journal.snapshot.devices] == ["failed", "upload"]
    clock.seconds += 1.0
    registry.take_progress("b", _progress("train", 0.1))
    assert (events[-1].kind, events[-1].fields["state"]) == ("device", "train")


@pytest.mark.parametrize("end", ["will", "expire", "remove"])
def test_nothing_follows_the_end_of_a_device(end: str) -> None:
    registry, journal, clock, _ = _registry()
    clock.seconds += 0.5
    registry.take_progress("b", _progress("train", 0.3))
    registry.take_progress("a", _progress("train", 0.4))
    if end == "will":
        registry.take_birth("a", Birth(session=SESSION, status="lost"))
    elif end == "remove":
        registry.remove("a")
    else:
        registry.doubt()
        registry.hear("b")
        clock.seconds += 1000.0
        assert registry.expire() == ["a"]
    clock.seconds += EVERY
    registry.due()
    views = {view.device: view for view in journal.snapshot.devices}
    assert "a" not in views if end == "remove" else views["a"].state == "lost"
