"""A client of the coordinator over MQTT: requests, orders, and events."""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import zstandard

from edgefed.config.fleet.broker_errors import denied
from edgefed.config.values.address import Address
from edgefed.errors import EdgeFedError, NotAllowedError, UnreachableError, WireError
from edgefed.process.clock import Clock, SystemClock
from edgefed.terminal.units import duration
from edgefed.transport.inbox import Arrival, Incoming, LinkDown, LinkUp, Subscribed, read_arrival
from edgefed.transport.link import Link
from edgefed.trust.credentials import newer_credentials
from edgefed.trust.superseded_certificate import COORDINATOR_SINCE, verifier_of_coordinator
from edgefed.wire import limits
from edgefed.wire.messages import CoordinatorState, EventMessage, Request, Response
from edgefed.wire.topics import CLIENT_SLOTS, UNSIGNED_USER, ParsedTopic, Topics

log = logging.getLogger(__name__)

FIND_TIMEOUT = 3.0
"""Seconds to wait for the coordinator's retained state."""

REPEAT_EVERY = 2.0
"""Seconds without an answer after which a request is sent again."""

REPEATS = 3
"""How often the same question is sent; it is answered once, and that answer may be lost."""

FIRST_CONNECTION = 3.0
"""Seconds that a request waits for the broker after the connection was started."""

RECONNECT_TIMEOUT = 5.0
"""Seconds to wait for the broker with other credentials."""

ANSWER_TIMEOUT = limits.ANSWER_SECONDS
MAX_BODY = 64 * 1024 * 1024


@dataclass
class _Waiting:
    """The parts received so far of the answers to a request and its repetitions, by nonce."""

    parts: dict[str, dict[int, Response]] = field(default_factory=dict)
    answer: list[Response] = field(default_factory=list)
    whole: threading.Event = field(default_factory=threading.Event)

    def take(self, answer: Response) -> None:
        """Take a part of an answer; the first one that is complete counts."""
        parts = self.parts[answer.nonce]
        if answer.part >= answer.parts or self.answer:
            return
        parts[answer.part] = answer
        if len(parts) == answer.parts:
            self.answer = [parts[number] for number in sorted(parts)]
            self.whole.set()


class CoordinatorClient:
    """A dashboard's or a command's connection to the coordinator.

    Args:
        address: the broker.
        fleet: of the coordinator.
        on_event: takes events as they arrive, on the connection's thread; None for none.
        on_link: called with whether the broker answers, on the connection's thread.
        clock: for the validity of credentials that replace the present ones.

    Raises:
        StorageError: the stored moment of the coordinator's certificate is damaged.
    """

    def __init__(
        self,
        address: Address,
        fleet: str,
        on_event: Callable[[EventMessage], None] | None = None,
        on_link: Callable[[bool], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._topics = Topics(fleet)
        self._clock = clock or SystemClock()
        own = address.credentials
        self._own = own
        self._renewing = threading.Lock()
        self._verifier = None
        if own is not None:
            since = own.folder.parent / f".{own.certificate.user}.{COORDINATOR_SINCE}"
            self._verifier = verifier_of_coordinator(own.authority, since, self._clock)
        self._fleet = fleet
        self._client = f"{_user(address)}/{secrets.randbelow(CLIENT_SLOTS)}"
        self._on_event = on_event
        self._on_link = on_link
        self._waiting: dict[str, _Waiting] = {}
        self._known = threading.Condition()
        self._state: CoordinatorState | None = None
        self._denied = ""
        self._began = self._closed = False
        subscriptions = [self._topics.coordinator(), self._topics.response(self._client)]
        if on_event is not None:
            subscriptions.append(self._topics.events())
        self._link = Link(
            address.for_commands(),
            f"edgefed-c-{secrets.token_hex(6)}",
            self._take,
            subscriptions=tuple(subscriptions),
        )

    def connect(self, timeout: float = 5.0) -> None:
        """Connect to the broker.

        Raises:
            UnreachableError: there is none.
            NotAllowedError: it requires a login, or another one.
        """
        self._link.start_now(timeout)

    def refresh_credentials(self) -> None:
        """Connect again if this party's credentials were replaced on disk; not for callbacks.

        A certificate is renewed and keys are replaced while a dashboard is open.
        """
        with self._renewing:
            if self._own is None:
                return
            newer = newer_credentials(self._own, self._clock.now())
            if newer is None:
                return
            with suppress(NotAllowedError):  # they are being replaced again; the next call finds it
                self._link.renew(newer)
                self._own = newer
                self._link.wait_until_connected(RECONNECT_TIMEOUT)

    def close(self) -> None:
        """Disconnect; calls that wait for an answer on other threads end at once."""
        self._closed = True
        for waiting in [*self._waiting.values()]:
            waiting.whole.set()
        with self._known:
            self._known.notify_all()
        self._link.stop()

    @property
    def connected(self) -> bool:
        """Whether the broker answers."""
        return self._link.connected

    @property
    def refused(self) -> str:
        """Why the broker refused the connection, such as a wrong password; empty when not."""
        return self._link.refused

    @property
    def state(self) -> CoordinatorState | None:
        """The last retained state of the coordinator."""
        return self._state

    @property
    def online(self) -> bool:
        """Whether the coordinator is online."""
        return self._state is not None and self._state.status == "online"

    def wait_until_online(self, timeout: float = FIND_TIMEOUT) -> None:
        """Wait for the coordinator.

        Raises:
            UnreachableError: it is not online.
            NotAllowedError: ``broker.subscription``: the broker refuses its subscriptions.
        """
        with self._known:
            if self._known.wait_for(lambda: self.online or self._denied or self._closed, timeout):
                self._check_subscriptions()
                return
        raise UnreachableError(
            f"Fleet {self._fleet} has no coordinator on {self._link.address}.",
            code="coordinator.unreachable",
            hint="start one with: edgefed coordinator, at a site: edgefed gateway run; or name the"
            " fleet with --fleet",
        )

    def ask(self, action: str, /, **arguments: Any) -> Any:
        """Send a request and return the coordinator's answer; see ``call``."""
        return self.call(action, arguments)

    def call(self, action: str, arguments: dict[str, Any], timeout: float | None = None) -> Any:
        """Send a request and return the coordinator's answer.

        Args:
            action: of the request.
            arguments: of the action.
            timeout: seconds to wait for the answer; None for ``ANSWER_TIMEOUT``.

        Raises:
            UnreachableError: there is no answer.
            EdgeFedError: the coordinator's own error, with its code, hint and exit code.
        """
        request = Request(nonce=_new_nonce(), action=action, arguments=arguments)
        return self._call(request, timeout)

    def order(self, action: str, /, **arguments: Any) -> Any:
        """Give an order, a request that changes something, and return the coordinator's answer.

        The order returns a challenge that expires before this method gives up: an order that failed
        is not carried out later.

        Raises:
            UnreachableError: there is no answer.
            EdgeFedError: the coordinator's own error, with its code, hint and exit code.
        """
        challenge = _token(self.ask("challenge"))
        request = Request(
            nonce=_new_nonce(), action=action, arguments=arguments, challenge=challenge
        )
        try:
            return self._call(request)
        except UnreachableError as error:
            if error.code == "coordinator.silent":
                error.hint = (
                    "it may have been carried out, but will not be any more; see: edgefed status"
                )
            raise

    def _call(self, request: Request, timeout: float | None = None) -> Any:
        timeout = ANSWER_TIMEOUT if timeout is None else timeout
        self.refresh_credentials()
        self._check_link()
        self.wait_until_online()
        waiting = _Waiting()
        try:
            if not self._sent_and_answered(request, waiting, timeout):
                self._check_subscriptions()
                if self._closed:
                    raise self._link.unreachable("the connection was closed")
                raise UnreachableError(
                    f"The coordinator did not answer within {duration(timeout)}.",
                    code="coordinator.silent",
                    hint="see its log; it may be busy or restarting",
                )
        finally:
            for nonce in waiting.parts:
                del self._waiting[nonce]
        return _body(waiting.answer)

    def _sent_and_answered(self, request: Request, waiting: _Waiting, timeout: float) -> bool:
        """Send a request, and again while nothing comes; return whether it was answered.

        The coordinator may be connecting again. It answers each nonce once, so that a question,
        which changes nothing, is asked under another one after some repetitions. A life of it that
        began later does not know whether the one before carried an order out, and is not given it.
        """
        life, sent = self._life(), 0
        end = self._clock.monotonic() + timeout
        self._expect(request, waiting)
        while not self._closed and (left := end - self._clock.monotonic()) > 0:
            if self._link.connected and self._life() == life:
                if sent == REPEATS and not request.challenge:
                    request, sent = request.model_copy(update={"nonce": _new_nonce()}), 0
                    self._expect(request, waiting)
                self._link.send(self._topics.request(self._client), request)
                sent += 1
            if waiting.whole.wait(min(left, REPEAT_EVERY)):
                break
        return bool(waiting.answer)

    def _expect(self, request: Request, waiting: _Waiting) -> None:
        waiting.parts[request.nonce] = {}
        self._waiting[request.nonce] = waiting

    def _life(self) -> str:
        return "" if self._state is None else self._state.session

    def _check_link(self) -> None:
        """Refuse while the broker is away; paho would keep the message and send it later.

        A connection that was just started is waited for.
        """
        if self._link.connected:
            self._began = True
        elif self._began or not self._link.wait_until_connected(FIRST_CONNECTION):
            raise self._link.unreachable("the connection is lost and being tried again")

    def _check_subscriptions(self) -> None:
        if self._denied:
            raise denied(self._link.address, self._denied)

    # -- the connection's thread --------------------------------------------------------------

    def _take(self, arrival: Arrival) -> None:
        match arrival:
            case Incoming():
                self._take_message(arrival)
            case Subscribed(granted=False):
                with self._known:
                    self._denied = arrival.filter
                    self._known.notify_all()
            case LinkUp() | LinkDown():
                self._denied = ""
                if self._on_link is not None:
                    self._on_link(isinstance(arrival, LinkUp))

    def _take_message(self, arrival: Incoming) -> None:
        read = read_arrival(self._topics, arrival, _refuse, self._verifier)
        if read is None:
            return
        match read.message:
            case CoordinatorState() as state:
                with self._known:
                    self._state = state
                    self._known.notify_all()
            case Response() as answer:
                self._take_answer(answer)
            case EventMessage() as event if self._on_event is not None:
                self._on_event(event)

    def _take_answer(self, answer: Response) -> None:
        waiting = self._waiting.get(answer.nonce)
        if waiting is not None:
            waiting.take(answer)


def _new_nonce() -> str:
    return secrets.token_hex(8)


def _user(address: Address) -> str:
    """Return as whom a client writes: the name in its certificate, which the broker compares."""
    return UNSIGNED_USER if address.credentials is None else address.credentials.certificate.user


def _token(body: Any) -> str:
    """Return the challenge in an answer.

    Raises:
        WireError: there is none.
    """
    token = body.get("challenge") if isinstance(body, dict) else None
    if not isinstance(token, str):
        raise _unreadable()
    return token


def _unreadable() -> WireError:
    return WireError(
        "The coordinator's response is invalid.",
        hint="install the same version of EdgeFed on both sides",
    )


def _body(answer: list[Response]) -> Any:
    """Return the body of an answer.

    Raises:
        WireError: it cannot be read.
        EdgeFedError: the coordinator's own error.
    """
    packed = b"".join(part.body for part in answer)
    try:
        body = json.loads(_unpacked(packed))
        if answer[0].ok:
            return body
        problem = body["error"]
        failure = EdgeFedError(str(problem["message"]), code=problem["code"], hint=problem["hint"])
        failure.exit_code = int(body["exit_code"])
    except (zstandard.ZstdError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable() from error
    raise failure


def _unpacked(packed: bytes) -> bytes:
    """Return an uncompressed body, if it is not too large."""
    # A frame that states its size would be unpacked whole, whatever the limit given to decompress.
    with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
        text: bytes = reader.read(MAX_BODY + 1)
    if len(text) > MAX_BODY:
        raise ValueError("the response is too large")
    return text


def _refuse(parsed: ParsedTopic, reason: str) -> None:
    log.warning("message on %s refused: %s", parsed.leaf, reason)
