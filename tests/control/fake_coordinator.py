"""A scripted coordinator that answers clients as a test defines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import zstandard

from edgefed.config.values.address import Address
from edgefed.transport.inbox import Arrival, Incoming
from edgefed.transport.link import Link
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import CoordinatorState, EventMessage, Request, Response
from edgefed.wire.topics import Topics

FLEET = "fake"
SESSION = "0123456789abcdef"
Answering = Callable[[Request], list[Response]]


def packed(body: Any) -> bytes:
    return zstandard.ZstdCompressor().compress(json.dumps(body).encode())


def answers(request: Request, body: Any, *, ok: bool = True, parts: int = 1) -> list[Response]:
    """Return an answer cut into parts."""
    data = packed(body)
    size = -(-len(data) // parts)
    return [
        Response(
            nonce=request.nonce,
            ok=ok,
            body=data[part * size : (part + 1) * size],
            part=part,
            parts=parts,
        )
        for part in range(parts)
    ]


class FakeCoordinator:
    """Answers with whatever ``answering`` returns; counts the requests."""

    def __init__(self, address: Address, answering: Answering, session: str = SESSION) -> None:
        self.topics = Topics(FLEET)
        self.requests: list[Request] = []
        self.answering = answering
        self.session = session
        self.link = Link(address, "fake", self._take, subscriptions=(self.topics.every_request(),))
        self.link.start_now(30)
        self.say("online")

    def close(self) -> None:
        self.link.stop()

    def say(self, status: Any) -> None:
        state = CoordinatorState(session=self.session, owner="fake", status=status)
        self.link.publish(self.topics.coordinator(), encode(state), retain=True)

    def event(self, number: int, kind: str, **fields: Any) -> None:
        flat = {"time": f"2026-01-01T00:00:{number:02d}.000Z", "kind": kind, **fields}
        message = EventMessage(session=self.session, number=number, event=flat)
        self.link.publish(self.topics.events(), encode(message))

    def _take(self, arrival: Arrival) -> None:
        if not isinstance(arrival, Incoming):
            return
        place = self.topics.parse(arrival.topic)
        assert place is not None
        request = decode(arrival.payload, Request)
        self.requests.append(request)
        for answer in self.answering(request):
            self.link.publish(self.topics.response(place.who), encode(answer))
