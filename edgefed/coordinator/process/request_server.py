"""Answer requests as they arrive: most at once, those that take long in a few threads."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from paho.mqtt.client import MQTTMessageInfo

from edgefed.coordinator.process.challenges import MAX_USERS
from edgefed.coordinator.process.request_handler import SLOW, RequestHandler
from edgefed.errors import NotAllowedError
from edgefed.process.clock import Clock
from edgefed.transport.link import Link
from edgefed.trust.certificates import Certificate
from edgefed.wire.limits import MAX_MESSAGE_BYTES
from edgefed.wire.messages import Request, Response
from edgefed.wire.topics import Topics

MAX_SLOW = 4
"""Most requests of one action that are answered in threads at one time.

Further ones are asked to try again. Devices that do not answer therefore never block the check of a
recipe.
"""

MAX_UNSENT, MAX_UNSENT_BYTES = 64, 8 * MAX_MESSAGE_BYTES
"""Responses to one user that the broker has not acknowledged, above which it gets no more. Its
requests are then left unread, and its client repeats them."""


MAX_REPETITIONS = 8
"""Repetitions of a question under way that its answer also serves; the newest count."""


@dataclass
class _Unsent:
    """The responses to a user that may still be on their way to the broker."""

    sent: deque[tuple[MQTTMessageInfo, int]]

    def is_full(self) -> bool:
        """Whether so many are on their way that the user gets no more for now."""
        while self.sent and _is_gone(self.sent[0][0]):
            self.sent.popleft()
        size = sum(size for _, size in self.sent)
        return len(self.sent) >= MAX_UNSENT or size >= MAX_UNSENT_BYTES


class RequestServer:
    """Carries out requests and publishes their answers.

    Args:
        handler: turns a request into answers.
        link: to the broker.
        topics: of the fleet.
        clock: measures how long answers take.
        answered: called with each user that was answered, and the seconds that this thread spent.
        has_time: whether a user is answered now. Once a user's share of the time is used up, its
            waiting requests are left unread.
    """

    def __init__(
        self,
        handler: RequestHandler,
        link: Link,
        topics: Topics,
        clock: Clock,
        answered: Callable[[str, float], None] = lambda user, seconds: None,
        has_time: Callable[[str], bool] = lambda user: True,
    ) -> None:
        self._handler = handler
        self._link = link
        self._topics = topics
        self._clock = clock
        self._answered = answered
        self._has_time = has_time
        self._unsent: OrderedDict[str, _Unsent] = OrderedDict()
        self._lock = threading.Lock()
        self._places = {action: threading.BoundedSemaphore(MAX_SLOW) for action in SLOW}
        self._repeated: dict[tuple[str, str, str], deque[Request]] = {}

    def take(self, client: str, request: Request, signer: Certificate | None) -> None:
        """Answer a request unless it came before; called by the dispatcher's thread."""
        user, began = _user(client), self._clock.monotonic()
        if self._is_full(user) or not self._has_time(user):
            return
        if self._handler.is_repeated(request, user):
            return
        places = self._places.get(request.action)
        if places is None:
            self._publish(client, self._handler.answer(request, signer, user))
        elif self._is_under_way(client, request):
            pass
        elif places.acquire(blocking=False):
            threading.Thread(
                target=self._answer, args=(client, request, signer), daemon=True
            ).start()
        else:
            self._take_repetitions(client, request)
            busy = NotAllowedError(
                "The coordinator is busy with other requests of this kind.",
                code="request.busy",
                hint="try again",
            )
            self._publish(client, self._handler.decline(request, busy))
        self._answered(user, self._clock.monotonic() - began)

    def _answer(self, client: str, request: Request, signer: Certificate | None) -> None:
        try:
            try:
                answers = self._handler.answer(request, signer, _user(client))
            finally:
                repetitions = self._take_repetitions(client, request)
            for received in (request, *repetitions):
                same = [answer.model_copy(update={"nonce": received.nonce}) for answer in answers]
                self._publish(client, same)
        finally:
            self._places[request.action].release()

    def _is_under_way(self, client: str, request: Request) -> bool:
        """Whether a client's equal question is being answered; if so, one answer serves both.

        A client asks anew, under another nonce, when an answer takes longer than it waits.
        """
        with self._lock:
            repetitions = self._repeated.get(_question(client, request))
            if repetitions is None:
                self._repeated[_question(client, request)] = deque(maxlen=MAX_REPETITIONS)
                return False
            repetitions.append(request)
            return True

    def _take_repetitions(self, client: str, request: Request) -> deque[Request]:
        with self._lock:
            return self._repeated.pop(_question(client, request))

    def _is_full(self, user: str) -> bool:
        with self._lock:
            unsent = self._unsent.get(user)
            return unsent is not None and unsent.is_full()

    def _publish(self, client: str, answers: list[Response]) -> None:
        topic, user = self._topics.response(client), _user(client)
        for answer in answers:
            info = self._link.send(topic, answer)
            with self._lock:
                unsent = self._unsent.setdefault(user, _Unsent(deque()))
                self._unsent.move_to_end(user)
                unsent.sent.append((info, len(answer.body)))
                if len(self._unsent) > MAX_USERS:
                    self._unsent.popitem(last=False)


def _question(client: str, request: Request) -> tuple[str, str, str]:
    """Return a key that is equal for equal requests of a client."""
    return client, request.action, json.dumps(request.arguments, sort_keys=True, default=repr)


def _is_gone(info: MQTTMessageInfo) -> bool:
    """Whether the broker has acknowledged a message, or the link did not take it."""
    try:
        return info.is_published()
    except (ValueError, RuntimeError):  # so paho says that it was not taken
        return True


def _user(client: str) -> str:
    """Return the user of USER/SLOT, as certificates name it; ``local`` in a fleet without."""
    return client.partition("/")[0]
