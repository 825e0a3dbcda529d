"""Questions and orders to a coordinator: answers in parts, silence, lost messages, closing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
import zstandard

from broker.mosquitto import MosquittoBroker
from edgefed.control import coordinator_client
from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.errors import EdgeFedError, NotAllowedError, UnreachableError, WireError
from edgefed.transport.inbox import LinkUp, Subscribed
from edgefed.wire.messages import Request, Response
from tests.control.fake_coordinator import FLEET, Answering, FakeCoordinator, answers, packed
from tests.transport.listening import PATIENCE, wait_until

pytestmark = pytest.mark.mosquitto
Meet = Callable[[Answering], tuple[CoordinatorClient, FakeCoordinator]]


@pytest.fixture
def meet(mosquitto: MosquittoBroker) -> Iterator[Meet]:
    """Let a client meet a coordinator that answers in some way."""
    with ExitStack() as opened:

        def make(answering: Answering) -> tuple[CoordinatorClient, FakeCoordinator]:
            fake = opened.enter_context(closing(FakeCoordinator(mosquitto.address, answering)))
            client = opened.enter_context(closing(CoordinatorClient(mosquitto.address, FLEET)))
            client.connect()
            return client, fake

        yield make


def test_a_question_is_answered(meet: Meet) -> None:
    client, fake = meet(lambda request: answers(request, request.arguments))
    assert client.ask("echo", run="r-1", deep={"a": [1, 2]}) == {
        "run": "r-1",
        "deep": {"a": [1, 2]},
    }
    assert [request.action for request in fake.requests] == ["echo"]
    assert client.online


def test_a_refused_subscription_is_an_error_until_the_next_connection(meet: Meet) -> None:
    client, _ = meet(lambda request: answers(request, "here"))
    client._take(Subscribed(f"edgefed/{FLEET}/control/local/0/response", granted=False))
    with pytest.raises(NotAllowedError, match="refused the subscription to edgefed/") as caught:
        client.ask("which")
    assert caught.value.code == "broker.subscription"
    client._take(LinkUp())
    assert client.ask("which") == "here"


def test_a_long_answer_comes_in_parts_in_any_order(meet: Meet) -> None:
    body = [f"entry {n * n}" for n in range(5000)]
    client, _ = meet(lambda request: answers(request, body, parts=7)[::-1])
    assert client.ask("list") == body


def test_the_coordinators_error_is_raised_with_its_exit_code(meet: Meet) -> None:
    told = {"error": {"code": "run.unknown", "message": "No run.", "hint": "list"}, "exit_code": 5}
    client, _ = meet(lambda request: answers(request, told, ok=False))
    with pytest.raises(EdgeFedError) as caught:
        client.ask("run.show", run="r-9")
    error = caught.value
    assert (error.code, error.message, error.hint) == ("run.unknown", "No run.", "list")
    assert error.exit_code == 5


def test_answers_to_other_questions_are_ignored(meet: Meet) -> None:
    def answering(request: Request) -> list[Response]:
        other = request.model_copy(update={"nonce": "f" * 16})
        beyond = Response(nonce=request.nonce, ok=True, body=b"?", part=5, parts=1)
        return [*answers(other, "wrong"), beyond, *answers(request, "right")]

    client, _ = meet(answering)
    assert client.ask("which") == "right"


BOMB = zstandard.ZstdCompressor().compress(bytes(coordinator_client.MAX_BODY + 1))


@pytest.mark.parametrize(
    ("ok", "body"),
    [
        (True, b"not zstd"),
        (True, zstandard.ZstdCompressor().compress(b"{not json")),
        (True, zstandard.ZstdCompressor().compress(b"[" * 100_000)),
        (True, packed("cut short")[:-3]),
        (True, BOMB),
        (False, packed({"error": "in other words"})),
        (False, packed([1, 2])),
    ],
)
def test_an_answer_that_cannot_be_read_is_told(meet: Meet, ok: bool, body: bytes) -> None:
    client, _ = meet(lambda request: [Response(nonce=request.nonce, ok=ok, body=body)])
    with pytest.raises(WireError, match="response is invalid"):
        client.ask("anything")


def test_a_silent_coordinator_is_given_up(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_client, "ANSWER_TIMEOUT", 0.2)
    client, _ = meet(lambda request: [])
    with pytest.raises(UnreachableError) as caught:
        client.ask("anything")
    assert caught.value.code == "coordinator.silent"


def test_a_question_that_waits_ends_when_the_connection_is_closed(
    meet: Meet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dashboard that quits does not wait for what it has asked."""
    for seconds in ("ANSWER_TIMEOUT", "REPEAT_EVERY"):
        monkeypatch.setattr(coordinator_client, seconds, 10.0**6)
    client, fake = meet(lambda request: [])
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(client.ask, "anything")
        wait_until(lambda: bool(fake.requests), "the question")
        client.close()
        with pytest.raises(UnreachableError, match="the connection was closed"):
            asked.result(PATIENCE)
    with pytest.raises(UnreachableError):
        client.ask("anything")


def test_a_lost_coordinator_is_not_asked(meet: Meet) -> None:
    client, fake = meet(lambda request: answers(request, 1))
    client.wait_until_online()
    fake.say("lost")
    with pytest.raises(UnreachableError) as caught:
        while True:  # until the news has come
            client.wait_until_online(0.0)
    assert caught.value.code == "coordinator.unreachable"
    assert fake.requests == []


def test_a_request_that_is_lost_is_sent_again(meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_client, "REPEAT_EVERY", 0.1)

    def answering(request: Request) -> list[Response]:
        return answers(request, "at last") if len(fake.requests) == 3 else []

    client, fake = meet(answering)
    assert client.ask("anything") == "at last"
    assert len({request.nonce for request in fake.requests}) == 1


def test_a_question_whose_answer_is_lost_is_asked_anew(
    meet: Meet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator answers a nonce once: here, nobody receives that answer."""
    monkeypatch.setattr(coordinator_client, "REPEAT_EVERY", 0.1)
    first: list[str] = []

    def answering(request: Request) -> list[Response]:
        first.append(request.nonce)
        return answers(request, "again") if request.nonce != first[0] else []

    client, fake = meet(answering)
    assert client.ask("anything") == "again"
    nonces = [request.nonce for request in fake.requests]
    assert nonces[: coordinator_client.REPEATS] == [nonces[0]] * coordinator_client.REPEATS
    assert len(set(nonces)) == 2
    assert client._waiting == {}


def test_an_order_whose_answer_is_lost_is_not_given_anew(
    meet: Meet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_client, "REPEAT_EVERY", 0.05)
    monkeypatch.setattr(coordinator_client, "ANSWER_TIMEOUT", 1.0)

    def answering(request: Request) -> list[Response]:
        return answers(request, {"challenge": "0" * 16}) if request.action == "challenge" else []

    client, fake = meet(answering)
    with pytest.raises(UnreachableError):
        client.order("run.order", run="r-1", order="abort")
    orders = [request.nonce for request in fake.requests if request.action == "run.order"]
    assert len(orders) > coordinator_client.REPEATS
    assert len(set(orders)) == 1


def test_a_later_life_is_not_given_what_an_earlier_one_was(
    meet: Meet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_client, "REPEAT_EVERY", 0.1)
    monkeypatch.setattr(coordinator_client, "ANSWER_TIMEOUT", 1.5)

    def answering(request: Request) -> list[Response]:
        fake.session = "f" * 16
        fake.say("online")
        return []

    client, fake = meet(answering)
    with pytest.raises(UnreachableError):
        client.ask("anything")
    # A repeat may have been under way when the news came.
    assert len(fake.requests) < 5
