"""Requests that read data are answered by a few threads; more of them are told to try again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from paho.mqtt.client import MQTTMessageInfo
from paho.mqtt.enums import MQTTErrorCode

from benchmarks.fuzzing.fleet import UnconnectedLink
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.devices.sender_limits import VIEWER_TIME, SenderLimits, everybody
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.process.challenges import Challenges
from edgefed.coordinator.process.request_handler import NONCES, RequestHandler, RunService
from edgefed.coordinator.process.request_server import (
    MAX_SLOW,
    MAX_UNSENT,
    MAX_UNSENT_BYTES,
    RequestServer,
)
from edgefed.coordinator.storage.run_store import Store
from edgefed.transport.inbox import Inbox, InboxCounts
from edgefed.wire.messages import Message, Request, Response
from edgefed.wire.topics import CLIENT_SLOTS, Topics
from tests.cli.runs.test_report import Nobody
from tests.coordinator.light_devices import HandClock
from tests.transport.listening import PATIENCE, wait_until


class Recorded(UnconnectedLink):
    """A link that keeps what is sent."""

    def __init__(self) -> None:
        super().__init__(Inbox[Any](HandClock()))
        self.answers: list[Response] = []
        self.topics: list[str] = []
        self.acknowledges = True

    def send(self, topic: str, message: Message, **how: Any) -> Any:
        assert isinstance(message, Response)
        self.answers.append(message)
        self.topics.append(topic)
        info = MQTTMessageInfo(len(self.answers))
        if self.acknowledges:
            info._set_as_published()
        return info


class Slow(Nobody):
    """Checks recipes when it is let go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def check(self, recipe: Recipe) -> dict[str, Any]:
        assert self.go_on.wait(PATIENCE)
        return {"checked": recipe.name}


def code(answer: Response) -> str:
    body = json.loads(zstandard.ZstdDecompressor().decompress(answer.body, 2**20))
    return str(body["error"]["code"])


class Scene:
    """A server over an empty store."""

    def __init__(self, folder: Path, runs: RunService) -> None:
        self.clock, self.link, self.charged = HandClock(), Recorded(), list[tuple[str, float]]()
        self.store = Store(folder)
        journal, tokens = EventJournal("served", self.clock), (f"{n:08x}" for n in range(10**6))
        challenges = Challenges(self.clock, lambda: next(tokens))
        last = InboxCounts, lambda name: None
        handler = RequestHandler("0" * 16, self.store, journal, runs, challenges, *last)
        self.limits = SenderLimits(Topics("served"), self.clock, everybody)

        def answered(user: str, seconds: float) -> None:
            self.charged.append((user, seconds))
            self.limits.answered(user, seconds)

        took = self.clock, answered, self.limits.has_time
        self.server = RequestServer(handler, self.link, Topics("served"), *took)
        self._nonces = (f"{n:08x}" for n in range(10**6))

    def ask(self, client: str, action: str = "run.list", **fields: Any) -> str:
        """Ask under a nonce of its own, and return that."""
        nonce = next(self._nonces)
        self.server.take(client, Request(nonce=nonce, action=action, **fields), None)
        return nonce


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, Nobody())
    yield made
    made.store.close()


def test_a_question_repeated_while_its_answer_takes_long_gets_the_same_answer(
    tmp_path: Path,
) -> None:
    """A client asks under another nonce when nothing comes; it is not told that it is busy."""
    runs = Slow()
    scene = Scene(tmp_path, runs)
    text = {"recipe": Recipe(name="slow").model_dump(mode="json")}
    nonces = [scene.ask("operator.ann/0", "run.check", arguments=text) for _ in range(MAX_SLOW + 2)]
    other = scene.ask("operator.ann/1", "run.check", arguments=text)
    assert not scene.link.answers
    runs.go_on.set()
    wait_until(lambda: len(scene.link.answers) == len(nonces) + 1, "the answers")
    assert {answer.nonce for answer in scene.link.answers} == {*nonces, other}
    assert all(answer.ok for answer in scene.link.answers)
    again = scene.ask("operator.ann/0", "run.check", arguments=text)
    wait_until(lambda: scene.link.answers[-1].nonce == again, "one more")
    scene.store.close()


def test_a_user_whose_responses_do_not_go_out_gets_no_more_and_delays_nobody(scene: Scene) -> None:
    scene.link.acknowledges = False
    for number in range(10 * MAX_UNSENT):
        scene.ask(f"viewer.bob/{number % CLIENT_SLOTS}")
    assert len(scene.link.answers) == MAX_UNSENT
    scene.link.acknowledges = True
    scene.ask("operator.ann/0")
    assert scene.link.topics[-1] == Topics("served").response("operator.ann/0")


def test_the_bytes_of_responses_that_wait_are_bounded_too(scene: Scene) -> None:
    scene.link.acknowledges = False
    large = Response(nonce="a" * 8, ok=True, body=bytes(MAX_UNSENT_BYTES // 8))
    scene.server._publish("viewer.bob/0", [large] * 7)
    scene.ask("viewer.bob/1")
    assert len(scene.link.answers) == 8
    scene.server._publish("viewer.bob/0", [large])
    scene.ask("viewer.bob/1")
    assert len(scene.link.answers) == 9


def test_a_user_is_answered_again_once_its_responses_went_out(scene: Scene) -> None:
    scene.link.acknowledges, infos = False, list[MQTTMessageInfo]()
    send = scene.link.send

    def kept(topic: str, message: Message, **how: Any) -> Any:
        infos.append(send(topic, message, **how))
        return infos[-1]

    scene.link.send = kept  # type: ignore[method-assign]
    for _ in range(2 * MAX_UNSENT):
        scene.ask("viewer.bob/0")
    infos[0]._set_as_published()
    scene.ask("viewer.bob/1")
    assert len(infos) == MAX_UNSENT + 1
    for info in infos[:10]:
        info.rc = MQTTErrorCode.MQTT_ERR_QUEUE_SIZE  # as paho says of one that it dropped
    scene.ask("viewer.bob/1")
    assert len(infos) == MAX_UNSENT + 2


def test_a_challenge_admits_no_order_of_another_user(scene: Scene) -> None:
    scene.ask("operator.ann/0", "challenge")
    (token,) = scene.server._handler._challenges._issued["operator.ann"]
    order = {"arguments": {"run": "r-1", "action": "pause"}, "challenge": token}
    for client, why in (("operator.bob/0", "challenge.expired"), ("operator.ann/5", "run.unknown")):
        scene.ask(client, "run.order", **order)
        assert code(scene.link.answers[-1]) == why


def test_many_orders_of_one_user_at_once_are_all_carried_out(scene: Scene) -> None:
    clients = [f"operator.ann/{number % CLIENT_SLOTS}" for number in range(40)]
    for client in clients:
        scene.ask(client, "challenge")
    tokens = list(scene.server._handler._challenges._issued["operator.ann"])
    scene.link.answers.clear()
    for client, token in zip(clients, tokens, strict=True):
        arguments = {"run": "r-1", "action": "pause"}
        scene.ask(client, "run.order", arguments=arguments, challenge=token)
    assert [code(answer) for answer in scene.link.answers] == ["run.unknown"] * 40


def test_the_requests_of_one_user_are_not_taken_for_anothers(scene: Scene) -> None:
    request = Request(nonce="a" * 8, action="run.list")
    for client in ("viewer.bob/0", "operator.ann/0", "operator.ann/1"):
        scene.server.take(client, request, None)
    assert len(scene.link.answers) == 2, "a repetition by the same user is left unanswered"
    for _ in range(2 * NONCES):
        scene.ask("viewer.bob/0")
    scene.server.take("operator.ann/0", request, None)
    assert len(scene.link.answers) == 2 + 2 * NONCES


def test_the_time_of_an_answer_is_charged_to_the_user(scene: Scene) -> None:
    runs = scene.store.runs

    def slowly() -> Any:
        scene.clock.seconds += 0.25
        return runs()

    scene.store.runs = slowly  # type: ignore[method-assign]
    scene.ask("viewer.bob/7")
    assert scene.charged == [("viewer.bob", 0.25)]


def test_requests_that_a_viewer_sends_at_once_take_no_more_than_its_time(scene: Scene) -> None:
    runs = scene.store.runs

    def slowly() -> Any:
        scene.clock.seconds += 0.5
        return runs()

    scene.store.runs = slowly  # type: ignore[method-assign]
    for number in range(100):  # all were admitted before the first one was answered
        scene.ask(f"viewer.bob/{number % CLIENT_SLOTS}")
    count = len(scene.link.answers)
    assert VIEWER_TIME.burst <= 0.5 * count <= VIEWER_TIME.burst + 1
    scene.ask("operator.ann/0")
    assert len(scene.link.answers) == count + 1
    scene.clock.seconds += 1 / VIEWER_TIME.per_second
    scene.ask("viewer.bob/0")
    assert len(scene.link.answers) == count + 2, "it is answered again without any order"


def test_slow_requests_have_a_few_places(tmp_path: Path) -> None:
    slow = Slow()
    scene = Scene(tmp_path, slow)
    server, link = scene.server, scene.link

    def check(number: int) -> None:
        request = Request(
            nonce=f"{number:08x}", action="run.check", arguments={"recipe": {"name": f"r-{number}"}}
        )
        server.take("local/0", request, None)

    for number in range(MAX_SLOW + 2):
        check(number)
    check(0)  # it came before
    assert [answer.ok for answer in link.answers] == [False, False]
    assert code(link.answers[0]) == "request.busy"
    server.take("local/0", Request(nonce="f" * 8, action="run.list"), None)
    assert link.answers[-1].ok, "others are answered meanwhile"
    server.take("local/0", Request(nonce="e" * 8, action="device.ping"), None)
    wait_until(lambda: len(link.answers) == 4, "an answer of another kind")
    assert code(link.answers[-1]) == "request", "it had a place, and nobody to carry it out"
    slow.go_on.set()
    wait_until(lambda: len(link.answers) == MAX_SLOW + 4, "the answers")
    wait_until(lambda: server._places["run.check"]._value == MAX_SLOW, "the places")
    check(99)
    wait_until(lambda: link.answers[-1].nonce == f"{99:08x}" and link.answers[-1].ok, "one more")
    scene.store.close()
