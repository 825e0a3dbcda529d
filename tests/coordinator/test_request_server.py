"""Requests that read data are answered by a few threads; more of them are told to try again."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import zstandard

from benchmarks.fuzzing.broker_message import UnconnectedLink
from edgefed.config.recipe import Recipe
from edgefed.coordinator.challenges import Challenges
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.request_handler import RequestHandler
from edgefed.coordinator.request_server import MAX_SLOW, RequestServer
from edgefed.coordinator.store import Store
from edgefed.transport.inbox import Inbox, InboxCounts
from edgefed.wire.messages import Message, Request, Response
from edgefed.wire.topics import Topics
from tests.cli.test_report import Nobody
from tests.coordinator.light_devices import HandClock
from tests.transport.listening import PATIENCE, wait_until


class Recorded(UnconnectedLink):
    """A link that keeps what is sent."""

    def __init__(self) -> None:
        super().__init__(Inbox[Any](HandClock()))
        self.answers: list[Response] = []

    def send(self, topic: str, message: Message, **how: Any) -> Any:
        assert isinstance(message, Response)
        assert topic == Topics("served").response("local/client")
        self.answers.append(message)


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


def test_slow_requests_have_a_few_places(tmp_path: Path) -> None:
    clock, slow, link = HandClock(), Slow(), Recorded()
    store = Store(tmp_path)
    handler = RequestHandler(
        "0" * 16,
        store,
        EventJournal("served", clock),
        slow,
        Challenges(clock, lambda: "0" * 8),
        InboxCounts,
        lambda name: None,
    )
    server = RequestServer(handler, link, Topics("served"))

    def check(number: int) -> None:
        request = Request(nonce=f"{number:08x}", action="run.check", arguments={"recipe": {}})
        server.take("local/client", request, None)

    for number in range(MAX_SLOW + 2):
        check(number)
    check(0)  # it came before
    assert [answer.ok for answer in link.answers] == [False, False]
    assert code(link.answers[0]) == "request.busy"
    server.take("local/client", Request(nonce="f" * 8, action="run.list"), None)
    assert link.answers[-1].ok, "others are answered meanwhile"
    server.take("local/client", Request(nonce="e" * 8, action="device.ping"), None)
    wait_until(lambda: len(link.answers) == 4, "an answer of another kind")
    assert code(link.answers[-1]) == "request", "it had a place, and nobody to carry it out"
    slow.go_on.set()
    wait_until(lambda: len(link.answers) == MAX_SLOW + 4, "the answers")
    wait_until(lambda: server._places["run.check"]._value == MAX_SLOW, "the places")
    check(99)
    wait_until(lambda: link.answers[-1].nonce == f"{99:08x}" and link.answers[-1].ok, "one more")
    store.close()
