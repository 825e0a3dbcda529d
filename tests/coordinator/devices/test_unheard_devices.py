"""When an awaited device is pinged, when it is silent, and what ends that."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.devices.unheard_devices import UnheardDevices
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.process.clock import timestamp
from edgefed.wire.messages import Birth, Progress

BEGAN = datetime(2024, 5, 6, 7, 8, 9, tzinfo=timezone.utc)
ONE, TWO = "1" * 8, "2" * 8
EXCHANGE = "r-1-0"


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> datetime:
        return BEGAN + timedelta(seconds=self.time)


class Scene:
    """A device that joined at second 0 and is asked, as it is shown, and the pings to it."""

    def __init__(self) -> None:
        self.clock = Hands()
        self.journal = EventJournal("fleet", self.clock)
        self.registry = DeviceRegistry(self.journal, self.clock)
        self.pings: list[tuple[str, float]] = []
        self.unheard = UnheardDevices(
            self.registry, lambda device: self.pings.append((device, self.clock.time))
        )
        self.registry.take_birth("a", birth())
        self.says("a")
        self.registry.ask(["a"], EXCHANGE)

    @property
    def shown(self) -> DeviceSnapshot:
        return self.journal.snapshot.devices[0]

    def says(self, device: str) -> None:
        self.registry.hear(device)

    def at(self, second: float) -> str:
        """The state of the device after a look at a second."""
        self.clock.time = second
        self.unheard.check(["a"], second)
        return self.shown.state


def birth(session: str = ONE, status: str = "online") -> Birth:
    return Birth.model_validate({"session": session, "status": status, "samples": 5})


def test_it_is_pinged_after_12_s_and_silent_3_s_later_since_its_last_message() -> None:
    scene = Scene()
    scene.clock.time = 4.0
    scene.says("a")
    assert [scene.at(second) for second in (4.1, 15.9)] == ["asked", "asked"]
    assert scene.pings == []
    assert [scene.at(second) for second in (16.0, 18.9)] == ["asked", "asked"]
    assert scene.at(19.0) == "silent"
    assert scene.shown.state_since == timestamp(BEGAN + timedelta(seconds=4))
    number = scene.journal.number
    assert scene.at(60.0) == "silent"
    assert scene.journal.number == number, "its silence is told once"
    assert scene.pings == [("a", 16.0)]


def test_any_message_answers_the_ping_and_ends_the_silence() -> None:
    scene = Scene()
    scene.at(12.0)
    scene.says("a")
    assert scene.at(15.0) == "asked", "it answered the ping"
    assert [scene.at(second) for second in (24.0, 27.0)] == ["asked", "silent"]
    scene.says("a")
    assert scene.shown.state == "asked"
    told = len(scene.journal.snapshot.lines)
    scene.says("a")
    assert len(scene.journal.snapshot.lines) == told, "its return is told once"
    assert [device for device, _ in scene.pings] == ["a", "a"]


def test_it_is_shown_as_it_was_before_the_silence() -> None:
    scene = Scene()
    at_work = Progress(session=ONE, state="train", fraction=0.5, exchange=EXCHANGE, reason="hot")
    scene.registry.take_progress("a", at_work)
    scene.at(12.0)
    assert scene.at(15.0) == "silent"
    assert scene.shown.before_lost == "train 50 %"
    scene.says("a")
    shown = scene.shown
    assert (shown.state, shown.fraction, shown.reason) == ("train", 0.5, "hot")


def test_time_without_the_broker_does_not_count() -> None:
    scene = Scene()
    scene.at(12.0)
    scene.clock.time = 14.0
    scene.registry.doubt()
    assert [scene.at(second) for second in (16.0, 25.9)] == ["asked", "asked"]
    assert [device for device, _ in scene.pings] == ["a"]
    assert [scene.at(second) for second in (26.0, 29.0)] == ["asked", "silent"]


def test_a_lost_device_is_neither_pinged_nor_silent() -> None:
    scene = Scene()
    scene.registry.take_birth("a", birth(status="lost"))
    assert [scene.at(second) for second in (12.0, 24.0, 27.0)] == ["lost"] * 3
    assert scene.pings == []


def test_a_silence_of_a_device_that_was_removed_is_not_noted() -> None:
    scene = Scene()
    scene.registry.remove("a")
    number = scene.journal.number
    scene.registry.note_silent("a", 20.0)
    assert scene.journal.number == number


def test_the_time_of_a_device_that_is_born_again_begins_anew() -> None:
    scene = Scene()
    scene.registry.take_birth("a", birth(status="lost"))
    scene.clock.time = 100.0
    scene.registry.take_birth("a", birth(TWO))
    scene.at(111.9)
    assert scene.pings == []
    scene.at(112.0)
    assert scene.pings == [("a", 112.0)]


def test_a_device_is_asked_until_it_says_that_it_has_the_task() -> None:
    scene = Scene()
    assert (scene.shown.state, scene.shown.exchange) == ("asked", EXCHANGE)
    for stale in ("idle", "done", "late", "rejected", "failed"):  # of the exchange before
        scene.registry.take_progress("a", progress(stale, "r-0-9"))
        assert scene.shown.state == "asked", stale
    for state in ("failed", "invited", "paused"):
        scene.registry.take_progress("a", progress(state, EXCHANGE))
        assert scene.shown.state == state


def test_a_device_that_was_not_heard_of_is_no_longer_asked_once_the_exchange_is_over() -> None:
    scene = Scene()
    scene.registry.take_progress("a", progress("done", "r-0-9"))
    scene.registry.end_asking("a")
    assert (scene.shown.state, scene.shown.exchange) == ("done", "r-0-9")
    told = len(scene.journal.snapshot.lines), scene.journal.number
    scene.registry.end_asking("a")
    assert told == (len(scene.journal.snapshot.lines), scene.journal.number)


def test_many_devices_are_asked_in_one_event_and_those_at_work_stay_so() -> None:
    scene = Scene()
    for device in ("b", "c"):
        scene.registry.take_birth(device, birth())
    scene.registry.take_progress("c", progress("train", EXCHANGE))
    number = scene.journal.number
    scene.registry.ask(["b", "c", "unknown"], EXCHANGE)
    assert scene.journal.number == number + 1
    assert [view.state for view in scene.journal.snapshot.devices] == ["asked", "asked", "train"]


def progress(state: str, exchange: str) -> Progress:
    return Progress.model_validate({"session": ONE, "state": state, "exchange": exchange})
