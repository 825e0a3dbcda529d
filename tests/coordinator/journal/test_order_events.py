"""Who gave an order, and whether it was taken, is an event that every screen shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.process.request_handler import MAX_ABOUT, note_order
from edgefed.errors import NotAllowedError
from edgefed.events.base.model import Event
from edgefed.process.clock import SystemClock
from edgefed.wire.messages import Request
from tests.coordinator.storage.test_service_orders import serving

NONCE = "ab" * 8


def noted(request: Request, by: str, body: object, problem: NotAllowedError | None) -> Event:
    journal = EventJournal("tests", SystemClock())
    heard: list[Event] = []
    journal.listen(lambda event, number: heard.append(event))
    note_order(journal, request, by, body, problem)
    (event,) = heard
    (line,) = journal.snapshot.lines
    assert event.fields["by"] in line.text
    return event


def test_an_order_that_was_taken() -> None:
    order = Request(nonce=NONCE, action="run.order", arguments={"run": "r-1", "action": "pause"})
    event = noted(order, "operator.maria", {"run": "r-1", "told": "pausing"}, None)
    assert event.fields == {
        "action": "run.order pause",
        "by": "operator.maria",
        "about": "r-1",
        "outcome": "taken",
        "reason": "",
    }


def test_an_order_that_was_refused_says_why() -> None:
    order = Request(nonce=NONCE, action="device.quarantine", arguments={"device": "cam-1"})
    event = noted(order, "", None, NotAllowedError("There is no cam-1."))
    assert event.fields == {
        "action": "device.quarantine",
        "by": "somebody",
        "about": "cam-1",
        "outcome": "refused",
        "reason": "There is no cam-1.",
    }


@pytest.mark.parametrize(
    ("arguments", "body", "about"),
    [
        ({"recipe": {}}, {"run": "r-9", "token": "secret"}, "r-9"),
        ({"users": ["broker", "cam-1"]}, [], "broker, cam-1"),
        ({"device": ""}, {"forgotten": []}, ""),
        ({"device": "x" * 500}, None, "x" * MAX_ABOUT),
        ({"device": {"odd": 1}}, None, ""),
    ],
)
def test_what_an_order_is_about(arguments: dict[str, object], body: object, about: str) -> None:
    order = Request(nonce=NONCE, action="some.order", arguments=arguments)
    assert noted(order, "local", body, None).fields["about"] == about


@pytest.mark.mosquitto
def test_questions_are_no_events_and_orders_are(mosquitto: MosquittoBroker, tmp_path: Path) -> None:
    with serving(mosquitto, tmp_path) as service:
        handler, told = service._requests._handler, list[Event]()
        service.journal.listen(lambda event, number: told.append(event))
        handler.answer(Request(nonce=NONCE, action="run.list"), by="local")
        handler.answer(Request(nonce=NONCE, action="no.such"), by="local")
        assert told == []
        order = Request(nonce=NONCE, action="device.forget", arguments={"device": ""})
        handler.answer(order, by="operator.ann")  # without a challenge
        taken = order.model_copy(update={"challenge": handler._challenges.issue("operator.ann")})
        handler.answer(taken, by="operator.ann")
        orders = [event.fields for event in told if event.kind == "order"]
        assert [each["outcome"] for each in orders] == ["refused", "taken"]
        assert {each["by"] for each in orders} == {"operator.ann"}
