"""Births of names that have not shown that they are alive: they wait, and are never asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.coordinator.devices import known_devices
from edgefed.coordinator.devices.known_devices import MAX_NEW, KnownDevices, NewDevices
from edgefed.coordinator.storage.run_store import Store
from edgefed.wire.messages import Birth, Progress
from tests.coordinator.dispatch.test_dispatcher import DEVICES, OTHER, TOPICS, Scene
from tests.transport.listening import wait_until

SESSION, SECOND = "1" * 16, "2" * 16


def birth(session: str = SESSION, status: str = "online") -> Birth:
    return Birth.model_validate({"session": session, "status": status, "samples": 5})


def test_a_message_of_the_same_session_ends_the_waiting() -> None:
    new = NewDevices()
    new.take("one", birth(), 100)
    assert new.hear("one", SECOND) is None
    assert new.hear("two", SESSION) is None
    assert new.hear("one", SESSION) == birth()
    assert new.hear("one", SESSION) is None


def test_a_will_of_its_session_takes_a_birth_away() -> None:
    new = NewDevices()
    new.take("one", birth(), 100)
    new.take("one", birth(SECOND, "lost"), 100)
    assert len(new) == 1
    new.take("one", birth(status="lost"), 100)
    assert len(new) == 0


def test_the_oldest_gives_way_by_number_and_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    new = NewDevices()
    for number in range(MAX_NEW + 10):
        new.take(f"n-{number}", birth(), 100)
    assert len(new) == MAX_NEW
    assert new.hear("n-9", SESSION) is None
    assert new.hear("n-10", SESSION) is not None
    monkeypatch.setattr(known_devices, "MAX_NEW_BYTES", 1000)
    new = NewDevices()
    for number in range(20):
        new.take(f"n-{number}", birth(), 300)
    assert len(new) == 3


@pytest.mark.mosquitto
def test_births_alone_are_never_in_the_roster(
    mosquitto: MosquittoBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(mosquitto, tmp_path)
    known = frozenset(DEVICES)
    object.__setattr__(scene.dispatcher._deps, "known", known.__contains__)
    scene.start()
    try:
        for number in range(50):
            scene.send(TOPICS.birth(f"born-{number}"), birth(OTHER), retain=True)
        scene.send(TOPICS.birth("alive"), birth(OTHER), retain=True)

        def has_joined() -> bool:  # a state may be read before the birth; devices repeat theirs
            scene.send(TOPICS.progress("alive"), Progress(session=OTHER, state="idle"))
            return scene.registry.online("alive")

        wait_until(has_joined, "the one that speaks")
        names = [member.device for member in scene.registry.roster()]
        assert names == sorted([*DEVICES, "alive"])
        assert not any("born-" in str(view.device) for view in scene.journal.snapshot.devices)
    finally:
        scene.stop()


def test_who_has_taken_part_is_known_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path)
    known = KnownDevices(store)
    for device in ("one", "two", "one"):
        known.add(device)
    assert "one" not in KnownDevices(store), "it is not written yet"
    known.save()
    known.forget("two")
    again = KnownDevices(store)
    assert ("one" in again, "two" in again, "three" in again) == (True, False, False)
    store.close()
