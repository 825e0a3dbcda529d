from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.control import snapshot_watcher
from edgefed.control.snapshot_watcher import SnapshotWatcher
from edgefed.events.base.snapshot import RunView, Snapshot
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.process.clock import SystemClock
from edgefed.wire.messages import Request, Response
from tests.control.fake_coordinator import FLEET, FakeCoordinator, answers
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto


class Scene:
    """A coordinator's snapshot and a watcher of it."""

    def __init__(self, broker: MosquittoBroker) -> None:
        self.body: Any = None
        self.number = 10
        self.round = 1
        self.broker = broker
        self.fake = FakeCoordinator(broker.address, self._answer)
        self.seen: queue.SimpleQueue[FeedUpdate] = queue.SimpleQueue()
        self.snapshot_watcher = SnapshotWatcher(broker.address, FLEET, SystemClock(), self.seen.put)

    def _answer(self, request: Request) -> list[Response]:
        run = RunView(run="r-1", status="running", round=self.round, rounds=9)
        body = {
            "session": self.fake.session,
            "number": self.number,
            "snapshot": Snapshot(fleet=FLEET, run=run).model_dump(mode="json"),
        }
        return answers(request, self.body if self.body is not None else body)

    def wait(self, condition: Callable[[FeedUpdate], bool], what: str) -> FeedUpdate:
        found: list[FeedUpdate] = []

        def look() -> bool:
            while not self.seen.empty():
                watched = self.seen.get()
                if condition(watched):
                    found.append(watched)
            return bool(found)

        wait_until(look, what)
        return found[0]

    def wait_for_round(self, number: int) -> FeedUpdate:
        return self.wait(lambda watched: shown_round(watched) == number, f"round {number}")


def shown_round(watched: FeedUpdate) -> int:
    run = watched.snapshot.run if watched.snapshot else None
    return run.round if run else -1


@pytest.fixture
def scene(mosquitto: MosquittoBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(snapshot_watcher, "EVERY", 0.02)
    made = Scene(mosquitto)
    with ExitStack() as opened:
        opened.enter_context(closing(made.fake))
        opened.callback(made.snapshot_watcher.stop)
        made.snapshot_watcher.start()
        yield made


def test_events_that_follow_the_snapshot_are_folded_in(scene: Scene) -> None:
    watched = scene.wait_for_round(1)
    assert (watched.broker, watched.coordinator, watched.problem) == (True, True, "")
    scene.fake.event(9, "round", round=7)  # older than the snapshot
    scene.fake.event(11, "round", round=2)
    scene.wait_for_round(2)
    assert len(scene.fake.requests) == 1


def test_a_gap_is_closed_with_a_new_snapshot(scene: Scene) -> None:
    scene.wait_for_round(1)
    scene.number, scene.round = 14, 5
    scene.fake.event(14, "round", round=5)
    scene.wait_for_round(5)
    scene.fake.event(15, "round", round=6)
    scene.wait_for_round(6)
    assert len(scene.fake.requests) == 2


def test_another_life_of_the_coordinator_is_asked_anew(scene: Scene) -> None:
    scene.wait_for_round(1)
    scene.fake.session, scene.number, scene.round = "f" * 16, 0, 3
    scene.fake.event(1, "round", round=4)
    scene.wait_for_round(3)


@pytest.mark.parametrize(
    ("kind", "fields"), [("nonsense", {}), ("round", {}), ("reply", {"outcome": []})]
)
def test_an_event_that_cannot_be_read_is_no_end(
    scene: Scene, kind: str, fields: dict[str, Any]
) -> None:
    scene.wait_for_round(1)
    scene.number, scene.round = 11, 2
    scene.fake.event(11, kind, **fields)
    scene.wait_for_round(2)
    scene.fake.event(12, "round", round=3)
    scene.wait_for_round(3)


@pytest.mark.parametrize("body", [{}, [], {"snapshot": {"run": 3}}, {"snapshot": {}, "number": {}}])
def test_a_snapshot_that_cannot_be_read_is_asked_for_again(scene: Scene, body: Any) -> None:
    scene.wait_for_round(1)
    scene.body = body
    scene.fake.event(99, "round", round=2)  # a gap
    wait_until(lambda: len(scene.fake.requests) > 1, "a second request")
    scene.body, scene.number, scene.round = None, 99, 8
    scene.wait_for_round(8)


def test_a_lost_coordinator_is_told(scene: Scene) -> None:
    scene.wait_for_round(1)
    scene.fake.say("lost")
    watched = scene.wait(lambda each: not each.coordinator, "the loss")
    assert watched.broker
    assert "has no coordinator" in watched.problem
    assert watched.since
    assert shown_round(watched) == 1  # what was known stays on the screen
    scene.fake.say("online")
    scene.wait(lambda each: each.coordinator and not each.problem and not each.since, "its return")


def test_a_lost_broker_is_told(scene: Scene) -> None:
    scene.wait_for_round(1)
    scene.broker.stop()
    watched = scene.wait(lambda each: not each.broker, "the loss")
    assert str(scene.broker.address) in watched.problem
    assert shown_round(watched) == 1
