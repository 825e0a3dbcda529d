"""A round with a quorum waits for lost devices for the grace period, and names them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.wire.messages import Birth, Task
from edgefed.wire.tensors import digest
from tests.coordinator.dispatch.test_dispatcher import (
    OTHER,
    TOPICS,
    Scene,
    exchange,
    never,
    reply,
)
from tests.transport.listening import PATIENCE, wait_until

NEW = "c" * 16
LONG = 2 * PATIENCE
"""Seconds that no test waits for: who waits until then has failed."""


class Round(Scene):
    """A scene that also keeps what is told of whom the exchange waits for."""

    def __init__(self, broker: MosquittoBroker, folder: Path) -> None:
        super().__init__(broker, folder)
        self.waiting: list[dict[str, Any] | None] = []
        self.journal.listen(lambda event, _: self._hear(event.fields))

    def _hear(self, fields: dict[str, Any]) -> None:
        if "waiting" in fields:
            self.waiting.append(fields["waiting"])

    def answers(self, opened: OpenExchange) -> Iterator[Delivered]:
        """Yield the replies, each accepted as the engine would."""
        for delivered in self.fleet.ask(opened, never):
            self.fleet.verdict(delivered.reply, "accepted", "")
            yield delivered

    def loses(self, device: str) -> None:
        self.send(TOPICS.birth(device), Birth(session=OTHER, status="lost"), retain=True)

    def returns(self, device: str) -> None:
        birth = Birth(session=NEW, status="online", samples=5)
        self.send(TOPICS.birth(device), birth, retain=True)

    def replies(self, device: str) -> None:
        inline = {"inline": {digest(b"x"): b"x"}}
        self.send(TOPICS.reply(device), reply(device, 1, digest(b"x")).model_copy(update=inline))

    def asked(self, device: str, times: int = 1) -> None:
        wait_until(lambda: len(self.told(TOPICS.task(device), Task)) >= times, f"{device}'s task")

    def waits_for(self, **told: list[str]) -> None:
        def said() -> bool:
            return any(each and told.items() <= each.items() for each in self.waiting)

        wait_until(said, f"waiting for {told}")


@pytest.fixture
def scene(mosquitto: MosquittoBroker, tmp_path: Path) -> Iterator[Round]:
    made = Round(mosquitto, tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    player = threading.Thread(target=act)
    player.start()
    yield
    player.join()


def opened(grace: float | None, quorum: int = 1) -> OpenExchange:
    return replace(exchange(), wanted=2, quorum=quorum, deadline=LONG, lost_grace=grace)


@pytest.mark.parametrize("first", ["loss", "quorum"])
def test_a_lost_device_does_not_hold_a_round_that_has_its_quorum(scene: Round, first: str) -> None:
    def act() -> None:
        scene.asked("one")
        if first == "quorum":
            scene.replies("one")
            scene.waits_for(lost=[], online=["two"])
            scene.loses("two")
        else:
            scene.loses("two")
            scene.waits_for(lost=["two"], online=["one"])
            scene.replies("one")

    with meanwhile(act):
        assert [each.reply.device for each in scene.answers(opened(0.3))] == ["one"]
    last = scene.waiting[-2]
    assert last is not None
    assert (last["lost"], last["online"], last["more"]) == (["two"], [], 0)
    assert scene.waiting[-1] is None
    assert "round 1 continues without two (lost)" in scene.notes


def test_who_is_back_within_the_grace_is_waited_for(scene: Round) -> None:
    def act() -> None:
        scene.asked("two")
        scene.loses("two")
        scene.replies("one")
        scene.waits_for(lost=["two"], online=[])
        scene.returns("two")
        scene.waits_for(lost=[], online=["two"])
        scene.asked("two", times=2)
        scene.replies("two")

    with meanwhile(act):
        found = [each.reply.device for each in scene.answers(opened(PATIENCE))]
    assert found == ["one", "two"]
    assert not any("continues without" in note for note in scene.notes)
    assert scene.waiting[-1] is None


def test_a_device_that_the_coordinator_does_not_know_has_the_grace_too(scene: Round) -> None:
    """As after a restart of the coordinator, when a device is gone with its retained birth."""
    scene.registry._entries.pop("two")

    def act() -> None:
        scene.asked("one")
        scene.replies("one")

    with meanwhile(act):
        assert [each.reply.device for each in scene.answers(opened(0.3))] == ["one"]
    assert "round 1 continues without two (lost)" in scene.notes


@pytest.mark.parametrize("event", ["nothing", "loss", "restart", "reply"])
def test_a_deadline_is_missed_by_who_could_have_answered(scene: Round, event: str) -> None:
    """The round ends at its deadline for a device that is connected and says nothing."""
    asked = replace(opened(None), deadline=1.0)

    def act() -> None:
        scene.asked("one")
        scene.replies("one")
        if event in ("loss", "restart"):
            scene.loses("two")
        if event == "restart":
            scene.returns("two")
        if event == "reply":
            scene.replies("two")

    with meanwhile(act):
        list(scene.answers(asked))
    missed = scene.fleet.missed_deadline(asked)
    assert missed == ({"two"} if event == "nothing" else set())
    assert scene.fleet.missed_deadline(asked) == set(), "it counts once"


def test_a_deadline_that_nobody_asks_about_is_forgotten_with_its_exchange(scene: Round) -> None:
    asked = replace(opened(None), deadline=0.1)
    list(scene.answers(asked))
    run = asked.exchange.removesuffix(f"-{asked.index}")
    scene.fleet.closed(run, asked.index - 1)
    assert scene.fleet._missed
    scene.fleet.closed(run, asked.index)
    assert not scene.fleet._missed
