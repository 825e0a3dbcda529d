"""Answer requests as they arrive: most at once, those that take long in a few threads."""

from __future__ import annotations

import threading

from edgefed.coordinator.request_handler import SLOW, RequestHandler
from edgefed.errors import NotAllowedError
from edgefed.transport.link import Link
from edgefed.trust.certificates import Certificate
from edgefed.wire.messages import Request, Response
from edgefed.wire.topics import Topics

MAX_SLOW = 4
"""Requests of one action that are answered in threads at one time; another one is told to try
again. Devices that do not answer thereby keep nobody from checking a recipe."""


class RequestServer:
    """Carries out requests and publishes their answers.

    Args:
        handler: turns a request into answers.
        link: to the broker.
        topics: of the fleet.
    """

    def __init__(self, handler: RequestHandler, link: Link, topics: Topics) -> None:
        self._handler = handler
        self._link = link
        self._topics = topics
        self._places = {action: threading.BoundedSemaphore(MAX_SLOW) for action in SLOW}

    def take(self, client: str, request: Request, signer: Certificate | None) -> None:
        """Answer a request unless it came before; called by the dispatcher's thread."""
        if self._handler.is_repeated(request):
            return
        places = self._places.get(request.action)
        if places is None:
            self._publish(client, self._handler.answer(request, signer, _user(client)))
        elif places.acquire(blocking=False):
            threading.Thread(
                target=self._answer, args=(client, request, signer), daemon=True
            ).start()
        else:
            busy = NotAllowedError(
                "The coordinator is busy with other requests of this kind.",
                code="request.busy",
                hint="try again",
            )
            self._publish(client, self._handler.decline(request, busy))

    def _answer(self, client: str, request: Request, signer: Certificate | None) -> None:
        try:
            self._publish(client, self._handler.answer(request, signer, _user(client)))
        finally:
            self._places[request.action].release()

    def _publish(self, client: str, answers: list[Response]) -> None:
        for answer in answers:
            self._link.send(self._topics.response(client), answer)


def _user(client: str) -> str:
    """Return who is behind USER/NAME, as certificates name them; ``local`` in a fleet without."""
    return client.partition("/")[0]
