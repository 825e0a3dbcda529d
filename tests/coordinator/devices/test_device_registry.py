"""Presence: retained births are valid for a limited time."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from edgefed.coordinator.devices.device_pauses import DevicePauses, OperatorPause
from edgefed.coordinator.devices.device_registry import DOUBT, MEASURED_EVERY, DeviceRegistry
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.errors import NotAllowedError, UnknownNameError
from edgefed.events.base.coordinator_states import (
    CHANGED_DATA,
    CONNECTION_BROKE,
    REFUSED_DATA,
    SILENT,
    STOPPED,
    why_paused,
)
from edgefed.events.base.model import Event
from edgefed.events.state.lines import describe, entry_of
from edgefed.wire.messages import Birth, Progress, Telemetry

ONE, TWO = "1" * 8, "2" * 8


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> datetime:
        return datetime(2024, 5, 6, tzinfo=timezone.utc)


class Scene:
    """A directory, its clock, and what it told."""

    def __init__(self) -> None:
        self.clock = Hands()
        self.events: list[Event] = []
        self.journal = EventJournal("fleet", self.clock)
        self.journal.listen(lambda event, _: self.events.append(event))
        self.registry = DeviceRegistry(self.journal, self.clock)


def birth(session: str = ONE, **changes: str) -> Birth:
    return Birth.model_validate({"session": session, "status": "online", "samples": 5, **changes})


def test_a_retained_birth_that_nobody_stands_behind_is_given_up() -> None:
    scene = Scene()
    scene.registry.take_birth("ghost", birth(), live=False)
    scene.registry.take_birth("alive", birth(), live=False)
    assert [member.device for member in scene.registry.roster()] == ["alive", "ghost"]
    scene.clock.time += DOUBT / 2
    scene.registry.hear("alive")
    assert scene.registry.expire() == []
    scene.clock.time += DOUBT / 2
    assert scene.registry.expire() == ["ghost"]
    assert scene.registry.expire() == []
    assert [member.device for member in scene.registry.roster()] == ["alive"]
    assert scene.events[-1].fields["state"] == "lost"
    assert scene.events[-1].fields["reason"] == SILENT
    announced = scene.registry.announced("ghost")
    assert announced is not None and announced[1].reason == SILENT, "as a gateway passes it on"


def test_after_the_broker_was_away_everybody_has_to_be_heard_again() -> None:
    scene = Scene()
    for device in ("dead", "reborn"):
        assert scene.registry.take_birth(device, birth())
    scene.registry.doubt()
    scene.registry.take_birth("dead", birth(), live=False)  # what the broker kept
    assert not scene.registry.take_birth("reborn", birth())
    scene.clock.time += DOUBT
    assert scene.registry.expire() == ["dead"]
    assert scene.registry.take_birth("dead", birth())


def test_a_birth_of_the_same_life_with_a_greater_revision_tells_of_other_data() -> None:
    scene = Scene()
    scene.registry.take_birth("one", birth())
    scene.registry.take_progress("one", Progress(session=ONE, state="train", exchange="r-1-3"))
    counts = {"samples": 9, "held_out": 3, "labels": (4, 5), "ignored": 2}
    other = {**counts, "class_names": ("ant", "bee")}
    newer = birth().model_copy(update={**other, "revision": 2})
    assert not scene.registry.take_birth("one", newer)
    for stale in (birth(), birth().model_copy(update={"revision": 1})):
        assert not scene.registry.take_birth("one", stale)
    (member,) = scene.registry.roster()
    assert (member.samples, member.class_names) == (9, ("ant", "bee"))
    assert scene.registry.working_on("one", "r-1-3"), "it goes on with what it does"
    (told,) = [each for each in scene.events if "renewed" in each.fields]
    assert told.fields == {"device": "one", "renewed": True, "channels": (), **other}
    line = describe(told)
    assert line is not None and line.text == "one  has other data, 9 samples"
    (view,) = scene.journal.snapshot.devices
    assert (view.samples, view.ignored, view.state) == (9, 2, "train")


@pytest.mark.parametrize(
    ("begin", "field", "mark"),
    [(REFUSED_DATA, "data_refused", "■"), (CHANGED_DATA, "data_changed", "·")],
)
def test_news_of_its_data_from_an_agent_at_work_are_in_the_log_once(
    begin: str, field: str, mark: str
) -> None:
    scene = Scene()
    scene.registry.take_birth("one", birth())
    reason = f"{begin}: a.npz"
    for state in ("idle", "idle", "train"):
        scene.registry.take_progress("one", Progress(session=ONE, state=state, reason=reason))
    (event,) = [each for each in scene.events if field in each.fields]
    line, entry = describe(event), entry_of(event)
    assert line is not None and (line.mark, line.text) == (mark, f"one  {reason}")
    assert entry is not None and (entry.outcome, entry.problem) == (begin, mark == "■")
    scene.registry.take_progress("one", Progress(session=ONE, state="idle"))
    scene.registry.take_progress("one", Progress(session=ONE, state="idle", reason=reason))
    assert sum(field in each.fields for each in scene.events) == 2


def test_a_repeated_birth_of_the_same_life_changes_nothing() -> None:
    scene = Scene()
    scene.registry.take_birth("one", birth())
    scene.registry.take_progress("one", Progress(session=ONE, state="train", exchange="r-1-3"))
    told = len(scene.events)
    assert not scene.registry.take_birth("one", birth(), live=False)
    assert scene.registry.working_on("one", "r-1-3")
    assert len(scene.events) == told
    assert scene.registry.take_birth("one", birth(TWO))
    assert not scene.registry.working_on("one", "r-1-3")


def test_who_speaks_without_a_birth_is_told_apart() -> None:
    scene = Scene()
    progress = Progress(session=ONE, state="idle")
    assert not scene.registry.take_progress("one", progress)
    assert not scene.registry.take_telemetry("one", Telemetry(session=ONE))
    scene.registry.take_birth("one", birth())
    assert scene.registry.take_progress("one", progress)
    assert not scene.registry.take_progress("one", Progress(session=TWO, state="idle"))
    scene.registry.take_birth("one", birth(status="lost"))
    assert not scene.registry.take_telemetry("one", Telemetry(session=ONE))


def test_a_flood_of_telemetry_makes_few_events() -> None:
    scene = Scene()
    scene.registry.take_birth("one", birth())
    told = len(scene.events)
    for _ in range(100):
        scene.clock.time += MEASURED_EVERY / 20
        assert scene.registry.take_telemetry("one", Telemetry(session=ONE, cpu=5.0))
    assert 1 <= len(scene.events) - told <= 6


def test_only_a_lost_device_can_be_forgotten_and_it_may_come_back() -> None:
    scene = Scene()
    with pytest.raises(UnknownNameError) as unknown:
        scene.registry.forget("one")
    assert unknown.value.code == "device.unknown"
    for device in ("one", "two"):
        scene.registry.take_birth(device, birth())
    with pytest.raises(NotAllowedError) as online:
        scene.registry.forget("one")
    assert online.value.code == "device.online"
    scene.registry.take_birth("one", birth(status="lost"))
    assert scene.registry.lost() == ["one"]
    scene.registry.forget("one")
    assert scene.registry.lost() == []
    assert [view.device for view in scene.journal.snapshot.devices] == ["two"]
    assert scene.journal.snapshot.lines[0].text == "one  forgotten"
    with pytest.raises(UnknownNameError):
        scene.registry.forget("one")
    scene.registry.take_birth("one", birth())
    assert [view.device for view in scene.journal.snapshot.devices] == ["one", "two"]
    assert scene.journal.snapshot.lines[0].text == "one  joined, 5 samples"


def test_a_device_that_was_lost_returns() -> None:
    scene = Scene()
    scene.registry.take_birth("one", birth())
    scene.registry.take_birth("one", birth(status="lost"))
    scene.registry.take_birth("one", birth(TWO))
    said = [line.text for line in scene.journal.snapshot.lines]
    assert said == [
        "one  returned, 5 samples",
        "one  lost: connection broke",
        "one  joined, 5 samples",
    ]


def test_who_is_lost_is_told_with_the_time_of_the_loss() -> None:
    scene = Scene()
    heard: list[str] = []
    scene.registry.listen(heard.append)
    for device in ("early", "late", "there"):
        scene.registry.take_birth(device, birth())
    scene.clock.time += 5
    scene.registry.take_birth("early", birth(status="lost"))
    scene.clock.time += 5
    scene.registry.take_birth("late", birth(status="lost"))
    assert heard == ["early", "late", "there", "early", "late"]
    devices = ("early", "late", "there", "unknown")
    lost = scene.registry.lost_since(devices, 1007.0)
    assert lost == {"early": 1007.0, "late": 1010.0, "unknown": 1007.0}
    scene.registry.take_birth("late", birth(TWO))
    assert heard[-1] == "late"
    assert scene.registry.lost_since(devices, 0.0) == {"early": 1005.0, "unknown": 0.0}


def test_the_silence_of_a_device_counts_from_when_it_is_given_up() -> None:
    scene = Scene()
    scene.registry.take_birth("ghost", birth(), live=False)
    heard: list[str] = []
    scene.registry.listen(heard.append)
    scene.clock.time += DOUBT
    scene.registry.expire()
    assert heard == ["ghost"]
    assert scene.registry.lost_since(["ghost"], 0.0) == {"ghost": 1000.0 + DOUBT}


def test_only_who_could_work_without_a_break_has_missed_a_deadline() -> None:
    scene = Scene()
    names = ("steady", "reborn", "lost", "back", "pausing", "resumed", "ghost", "late")
    for name in names[:-2]:
        scene.registry.take_birth(name, birth())
    scene.registry.take_birth("ghost", birth(), live=False)
    scene.registry.take_progress("resumed", Progress(session=ONE, state="paused"))
    scene.clock.time += 1
    start = scene.clock.time
    scene.clock.time += 1
    scene.registry.take_birth("reborn", birth(TWO))
    for name in ("lost", "back"):
        scene.registry.take_birth(name, birth(status="lost"))
    scene.registry.take_birth("back", birth())
    scene.registry.take_progress("pausing", Progress(session=ONE, state="paused"))
    scene.registry.take_progress("resumed", Progress(session=ONE, state="train"))
    scene.registry.take_progress("steady", Progress(session=ONE, state="train"))
    scene.registry.take_birth("late", birth())
    assert scene.registry.steady_since([*names, "unknown"], start) == {"steady"}
    scene.registry.take_progress("pausing", Progress(session=ONE, state="train"))
    assert scene.registry.steady_since(names, start) == {"steady"}, "it had paused"
    scene.registry.doubt()
    for name in names:
        scene.registry.hear(name)
    assert scene.registry.steady_since(names, start) == set(), "the broker was away"


def test_whom_an_operator_pauses_misses_no_deadline() -> None:
    scene = Scene()
    pauses = DevicePauses()
    registry = DeviceRegistry(scene.journal, scene.clock, pauses=pauses)
    registry.take_birth("one", birth())
    assert registry.steady_since(["one"], scene.clock.time) == {"one"}
    pauses.pause(OperatorPause("one", "ann", "", ""))
    assert registry.steady_since(["one"], scene.clock.time) == set()


def leaving(reason: str, session: str = ONE) -> Progress:
    return Progress(session=session, state="lost", reason=reason)


def lost_reasons(scene: Scene) -> list[str]:
    return [event.fields["reason"] for event in scene.events if event.fields.get("state") == "lost"]


def test_a_device_is_lost_once_with_the_reason_that_it_gave_or_a_broken_connection() -> None:
    scene = Scene()
    scene.registry.take_birth("one", birth())
    scene.registry.take_farewell("one", leaving("another life", TWO))
    scene.registry.take_farewell("one", leaving(STOPPED))
    assert lost_reasons(scene) == [], "it is there until its birth says that it is not"
    scene.registry.take_birth("one", birth(status="lost"))
    scene.registry.take_birth("one", birth(TWO))
    scene.registry.take_birth("one", birth(TWO, status="lost"))
    assert lost_reasons(scene) == [STOPPED, CONNECTION_BROKE]


def test_a_device_that_never_joined_says_why_and_can_be_forgotten() -> None:
    scene = Scene()
    scene.registry.take_farewell("new", leaving(f"{REFUSED_DATA}: it is empty"))
    (view,) = scene.journal.snapshot.devices
    assert (view.state, view.reason) == ("lost", f"{REFUSED_DATA}: it is empty")
    assert (scene.registry.lost(), len(scene.registry)) == (["new"], 1)
    assert not scene.registry.online("new") and not scene.registry.known()
    scene.registry.forget("new")
    assert scene.journal.snapshot.devices == ()


def test_an_agent_that_cannot_begin_says_nothing_of_one_of_its_name_at_work() -> None:
    scene = Scene()
    scene.registry.take_birth("one", birth())
    scene.registry.take_farewell("one", leaving(f"{REFUSED_DATA}: it is empty", TWO))
    scene.registry.take_birth("one", birth(status="lost"))
    assert lost_reasons(scene) == [CONNECTION_BROKE]
    scene.registry.take_farewell("one", leaving(f"{REFUSED_DATA}: it is empty", TWO))
    assert scene.journal.snapshot.devices[0].reason == f"{REFUSED_DATA}: it is empty"


def test_a_device_whose_owner_does_not_let_it_train_is_not_asked_whatever_it_does() -> None:
    scene, heard = Scene(), list[str]()
    registry = scene.registry
    registry.take_birth("cam", birth())
    registry.listen(heard.append)

    def say(state: str, **fields: Any) -> dict[str, Any]:
        told = Progress.model_validate({"session": ONE, "state": state, **fields})
        assert registry.take_progress("cam", told)
        return scene.events[-1].fields

    def asked() -> bool:
        return [member.device for member in registry.roster()] == ["cam"]

    assert asked() and not registry.paused()
    said = say("upload", may_train=False, resumes_in=3600.0)
    assert not asked()  # although its answer is still on its way
    assert heard == ["cam"]
    said = say("paused", reason="outside its hours", may_train=False, resumes_in=90.0)
    assert said["resumes_at"] == "2024-05-06T00:01:30.000Z"
    assert registry.paused() == {"cam": "outside its hours, until Mon 00:01 UTC"}
    (view,) = scene.journal.snapshot.devices
    assert (view.state, view.resumes_at) == ("paused", said["resumes_at"])
    assert why_paused(view) == registry.paused()["cam"]
    assert registry.steady_since(["cam"], scene.clock.time) == frozenset()
    scene.clock.time += 1
    assert "resumes_at" not in say("idle")
    assert asked() and heard == ["cam", "cam"]
    assert scene.journal.snapshot.devices[0].resumes_at == ""
    assert registry.steady_since(["cam"], scene.clock.time - 1) == frozenset()


def test_a_late_report_of_work_does_not_hide_a_pause() -> None:
    scene = Scene()
    scene.registry.take_birth("cam", birth())
    for fraction in (0.1, 0.2):  # the second one is collected
        scene.clock.time += 0.1
        told = Progress(session=ONE, state="train", fraction=fraction, exchange="r-1-0")
        scene.registry.take_progress("cam", told)
    pause = Progress(session=ONE, state="paused", reason="hot", may_train=False, resumes_in=5.0)
    scene.registry.take_progress("cam", pause)
    scene.clock.time += 10
    scene.registry.due()
    assert scene.journal.snapshot.devices[0].state == "paused"
