"""Targets of the coordinator: its dispatcher, its answers to requests, its limits and enrolment."""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn
from unittest.mock import patch

from hypothesis import strategies as st

from benchmarks.fuzzing import fleet
from benchmarks.fuzzing.fleet import CLIENTS, TOPICS
from benchmarks.fuzzing.running import Reader, Target
from benchmarks.fuzzing.strategies import (
    STRANGE,
    Lane,
    Pools,
    arrivals,
    broken,
    choices,
    join,
    payloads,
    siblings,
)
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.address import Address
from edgefed.coordinator.devices.device_diagnostics import _Question
from edgefed.coordinator.devices.sender_limits import SenderLimits
from edgefed.coordinator.exchanges.awaited_replies import PendingExchange
from edgefed.coordinator.members.membership import Membership, MembershipSettings
from edgefed.coordinator.process import service
from edgefed.coordinator.process.challenges import Challenges
from edgefed.coordinator.process.service import Service
from edgefed.coordinator.process.service_settings import ServiceSettings
from edgefed.coordinator.storage.new_run import create_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import OpenExchange, RunRecord
from edgefed.errors import EdgeFedError, NotAllowedError, WireError
from edgefed.transport.inbox import Inbox
from edgefed.transport.link import Link
from edgefed.trust.authority import AUTHORITY_FOLDER
from edgefed.trust.certificates import Certificate, Role
from edgefed.trust.issuing import make_request
from edgefed.trust.signatures import Signer
from edgefed.trust.tokens import Token
from edgefed.wire import enrolment_messages as enrolment
from edgefed.wire.enrolment_messages import EnrolmentRequest, EnrolmentResponse
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import Birth, BlobRef, CoordinatorState, Request, Task
from edgefed.wire.tensors import digest
from edgefed.wire.topics import TOPIC_SPECS

DEVICES = ("dev-1", "dev-2", "dev-3")
SESSION, NONCE = "a" * 16, "0" * 8
BLOBS = tuple(bytes([number]) * (number * 70_000 + 5) for number in range(3))
POOLS: Pools = {
    "device": DEVICES,
    "session": (*3 * (SESSION,), "b" * 16),
    "exchange": ("r-1-0", "r-1-1", "r-1-0-x"),
    "run": ("r-1",),
    "index": (0, 1),
    "digest": tuple(digest(blob) for blob in BLOBS),
    "nonce": tuple(f"{number:08x}" for number in range(2000)),
    "chunks": ((), (0,), (0, 1, 2), (99,)),
}

# -- who asks for certificates ----------------------------------------------------------------

INVITED: tuple[tuple[Role, str], ...] = (
    ("device", "new-1"),
    ("device", "new-2"),
    ("operator", "new"),
    ("device", ""),
    ("device", ""),
    ("device", "expired"),
)
"""Holders of tokens; those without a name choose one."""

NAMES = ("", "new-1", "cam-1", "dev-1", "coordinator", "authority")
ASKED_ROLES: tuple[tuple[Role, ...], ...] = (("device",), ("operator", "viewer"))
"""Of the two programs that enrol."""


@lru_cache
def tokens() -> tuple[Token, ...]:
    """Return tokens whose secrets are known, and at the end one that nobody gave out."""
    authority = fleet.certificate_of("authority").public_bytes
    words = [name for _, name in INVITED]
    return tuple(
        Token(authority, hashlib.sha256(b"%d" % i).digest()[:16], "127.0.0.1", 2, fleet.FLEET, name)
        for i, name in enumerate((*words, "unknown"))
    )


@lru_cache
def certificate_requests() -> tuple[bytes, ...]:
    """Return requests for certificates of several keys, one with a long name."""
    names = ("new-1", "new-2", "cam-1", "dev-1", "x" * 60)
    return tuple(make_request(fleet.keys_of(f"key {name}"), name) for name in names)


def make_enrolment(token: Token, draws: random.Random) -> bytes:
    """Return a request for a certificate, proven by a token or not, or broken."""
    name = token.name if draws.random() < 0.5 else draws.choice(NAMES)
    chosen = draws.choice(certificate_requests())
    request = broken(chosen, draws)[:2048] if draws.random() < 0.3 else chosen
    prover = token if draws.random() < 0.9 else draws.choice(tokens())
    asked = enrolment.signed_request(name, request, prover.proof_key, draws.choice(ASKED_ROLES))
    data = encode(asked)
    return broken(data, draws) if draws.random() < 0.2 else data


TOKENS = st.deferred(lambda: st.sampled_from(tokens()))
ENROLMENT = siblings(
    TOKENS, lambda token, draws: token.id.encode() + make_enrolment(token, draws)
) | payloads(EnrolmentRequest, {}).map(lambda inputs: [bytes(20) + data for data in inputs])
ENROLLING = siblings(
    TOKENS,
    lambda token, draws: join(
        TOPICS.enrolment_request(token.id), make_enrolment(token, draws), draws
    ),
)

# -- the coordinator --------------------------------------------------------------------------


class Coordinator(Service):
    """A coordinator without a connection; its own threads process no messages."""

    def __init__(self, folder: Path, *, signed: bool) -> None:
        own = fleet.credentials_of("coordinator") if signed else None
        address, members = Address("127.0.0.1", 1, tls=signed, credentials=own), None
        if signed:
            fleet.saved_authority(folder / "trust" / AUTHORITY_FOLDER)
            members = MembershipSettings(
                folder / "trust", timedelta(days=30), lambda users, revoked: None
            )
        self.clock = fleet.FuzzClock()
        settings = ServiceSettings(address, fleet.FLEET, folder / "state", membership=members)
        with (
            patch.object(service, "Store", partial(Store, durable=False)),
            patch.object(service, "refuse_second_coordinator"),
        ):
            super().__init__(settings, self.clock)
        self._requests._handler._challenges = Challenges(self.clock, lambda: NONCE)
        self._diagnostics._open.update(
            (nonce, _Question(DEVICES[0], SESSION, nonce, 0.0)) for nonce in POOLS["nonce"]
        )
        self._diagnostics._wait = lambda asked, timeout: None  # type: ignore[method-assign]
        for blob in BLOBS[:2]:
            self.cache.put(blob)
        self._opened: PendingExchange | None = None
        self.next_exchange()
        if self._membership is not None:
            self._admit(self._membership)

    def _make_link(self, inbox: Inbox[NoReturn], state: CoordinatorState) -> Link:
        del state
        return fleet.UnconnectedLink(inbox, self._settings.address.credentials)

    def _make_enrolment(self, membership: Membership, inbox: Inbox[NoReturn]) -> None:
        del membership, inbox

    def start(self, recipe: Recipe, *, paused: bool = False) -> RunRecord:
        """Start nothing."""
        raise NotAllowedError("Nothing is started here.", code="run.busy")

    def check(self, recipe: Recipe) -> dict[str, Any]:
        """Return nothing."""
        del recipe
        return {}

    def _take_request(self, client: str, request: Request, signer: Certificate | None) -> None:
        handler = self._requests._handler
        handler._challenges.issue("")
        self._requests._publish(client, handler.answer(request, signer))

    def __call__(self, data: bytes) -> None:
        """Process a message.

        Raises:
            WireError: it was refused.
        """
        self.clock.move(0.05)
        with self.dispatcher._lock:
            self.dispatcher._take(fleet.split(data))
            self.dispatcher._tick()
        self._link._pending.clear()
        fleet.read_again(data, self.dispatcher._deps.verifier)

    def join(self, device: str) -> None:
        """Let a device that has taken part before go online."""
        self._known.add(device)
        signed = self._membership is not None
        signer = Signer(fleet.credentials_of(device)) if signed else None
        birth, topic = Birth(session=SESSION, status="online", samples=8), TOPICS.birth(device)
        with suppress(WireError):  # its certificate may be revoked
            self(b"-" + topic.encode() + b"\n" + encode(birth, topic, signer))

    def next_exchange(self) -> None:
        """Close the exchange that is open, and open the same again."""
        if self._opened is not None:
            self.dispatcher.close(self._opened)
            self.dispatcher.forget("r-1", 0)
        self._opened = PendingExchange(_exchange(), self.clock.monotonic())
        self.dispatcher.open(self._opened)

    def _admit(self, membership: Membership) -> None:
        """Make the known parties members, and give out the tokens that are known."""
        for name in fleet.PARTIES:
            if name not in ("broker", "stranger", "renewed", "revoked"):
                membership.parties.register(fleet.certificate_of(name))
        secrets = iter(token.secret for token in tokens())
        membership._enrolment._random_bytes = lambda count: next(secrets)
        for role, name in INVITED:
            membership._enrolment.invite(role, name, -1.0 if name == "expired" else 10.0**6)
        membership._enrolment._random_bytes = random.Random(1).randbytes

    def decide(self, action: Callable[[Membership, str], object], name: str) -> None:
        """Let an operator decide about a party, if there is such a party."""
        assert self._membership is not None
        with suppress(EdgeFedError):
            action(self._membership, name)

    def close(self) -> None:
        """End the threads, and close the files."""
        self.dispatcher._sender.stop()
        self.dispatcher._replies.stop()
        self._lock.release()
        for part in (self._store, self._trust, self._pauses, self._membership):
            if part is not None:
                part.close()


class RequestReader(Coordinator):
    """A coordinator that carries out requests without a topic, with a run and a device."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, signed=False)
        create_run(self._store, Recipe(), self.clock)
        self.journal.emit("device", device="dev-1", state="idle")

    def __call__(self, data: bytes) -> None:
        """Carry out a request, and answer it.

        Raises:
            WireError: it cannot be read.
        """
        request, handler, body = decode(data, Request), self._requests._handler, None
        handler._challenges.issue("")
        with suppress(EdgeFedError, ValueError):  # ValueError: pydantic's, which becomes an answer
            body = handler._carry_out(request, None)
        assert body is None or handler.answer(request, None)


class Authority(Coordinator):
    """A coordinator that answers the holders of tokens; certificates need a token."""

    def __call__(self, data: bytes) -> None:
        """Answer a request that comes after the number of a token.

        Raises:
            NotAllowedError: it is refused.
        """
        self.clock.move(0.1)
        token, asked = data[:20].decode("latin-1"), decode(data[20:], EnrolmentRequest)
        assert self._membership is not None
        answer = self._membership.answer(token, asked)
        assert answer is not None, "no request is dropped at this rate"
        assert decode(encode(answer), EnrolmentResponse) == answer
        if answer.status == "refused":
            raise NotAllowedError(answer.reason, code=answer.code)
        check_answer({known.id: known for known in tokens()}[token], asked, answer)


def _exchange() -> OpenExchange:
    """Return an exchange that asks each device to train."""
    known = choices(Task, {"run": ("r-1",), "exchange": ("r-1-1",), "index": (1,)})
    fields = {
        **{
            name: known[name][0] for name, field in Task.model_fields.items() if field.is_required()
        },
        "question": "fit",
        "deadline": 60.0,
        "samples": 5,
        "receivers": DEVICES,
        "blobs": {"weights": BlobRef(digest=digest(BLOBS[1]), size=len(BLOBS[1]))},
        "max_relay_bytes": 2**20,
    }
    tasks = tuple(Task.model_validate({**fields, "device": device}) for device in DEVICES)
    return OpenExchange("r-1-1", 1, "fit", 1, tasks, wanted=3, quorum=1, deadline=60.0)


# -- messages ---------------------------------------------------------------------------------


@lru_cache
def pools() -> Pools:
    """Return values of messages, with each action of a coordinator and arguments of them all."""
    with TemporaryDirectory() as folder, closing(RequestReader(Path(folder))) as reader:
        actions = reader._requests._handler._actions
    known = {**POOLS, "name": NAMES, "user": (*fleet.PARTIES,), "recipe": ({"name": "x"}, {})}
    draws, arguments = random.Random(1), list[dict[str, Any]]()
    for fields in [choices(action.arguments, known) for action in actions.values()] * 12:
        drawn = {name: draws.choice(values) for name, values in fields.items()}
        strange = dict.fromkeys(draws.sample([*fields], k=len(fields) > 0), draws.choice(STRANGE))
        arguments += [drawn, {**drawn, **strange}]
    return {
        **POOLS,
        "action": (*actions, "nothing"),
        "challenge": (NONCE,),
        "arguments": tuple(arguments),
        "request": certificate_requests(),
    }


def lanes(devices: tuple[str, ...], clients: tuple[str, ...]) -> Iterator[Lane]:
    """Return the topics that a coordinator reads, and that of a chunk for everybody."""
    for spec in TOPIC_SPECS.values():
        if spec.branch in ("up", "all"):
            yield spec, devices if spec.branch == "up" else ("",), pools()
    yield TOPIC_SPECS["control", "request"], clients, pools()


MESSAGES = st.deferred(lambda: arrivals(TOPICS, lanes((*DEVICES, "nobody"), ("local/0",))))
SIGNED_MESSAGES = ENROLLING | st.deferred(
    lambda: arrivals(TOPICS, lanes((*DEVICES, "dev-4"), (*CLIENTS,)), fleet.sealing(forged=0.1))
)
MANY = (*200 * DEVICES, *(f"n-{number}" for number in range(200)))
SENDERS = st.deferred(lambda: arrivals(TOPICS, lanes(MANY, tuple(f"{name}/1" for name in MANY))))
REQUESTS = st.deferred(lambda: payloads(Request, pools()))


# -- other targets ----------------------------------------------------------------------------


def limits(make_gate: Callable[[fleet.FuzzClock], Any], folder: Path) -> Reader:
    """Return a reader of messages that a gate judges before they enter an inbox."""
    del folder
    clock = fleet.FuzzClock()
    inbox: Inbox[NoReturn] = Inbox(clock, gate=make_gate(clock))

    def read(data: bytes) -> None:
        clock.move(0.001)
        inbox.put(fleet.split(data))
        while inbox.get(0.0) is not None:
            pass

    return read


def _sender_limits(clock: fleet.FuzzClock) -> SenderLimits:
    return SenderLimits(TOPICS, clock, DEVICES.__contains__)


def check_answer(token: Token, asked: EnrolmentRequest, answer: EnrolmentResponse) -> None:
    """Check that only the holder of a token gets more than a refusal, and for its own name."""
    assert token.name not in ("unknown", "expired"), "the token is not valid"
    roles = ",".join(asked.roles).encode()
    parts = (b"enrolment_request", asked.name.encode(), asked.request, roles)
    covered = b"".join(len(part).to_bytes(4, "big") + part for part in parts[1:])
    proof = hmac.new(token.proof_key, parts[0] + b"\0" + covered, hashlib.sha256).digest()
    assert asked.proof == proof, "the token was not proven"
    assert not token.name or answer.name == token.name, "the token is for another"
    if answer.status == "enrolled":
        assert answer.role in ("device", "operator")
        assert answer.role in asked.roles, "the token is for another program"
        unproven = answer.model_copy(update={"proof": b""})
        assert answer.proof == enrolment.sealed(unproven, token.proof_key).proof


def remove(membership: Membership, name: str) -> None:
    """Remove a party from the fleet."""
    membership.parties.revoke(name, "removed")


def dispatcher(folder: Path, *, signed: bool) -> Coordinator:
    """Return a coordinator with two devices online."""
    made = Coordinator(folder, signed=signed)
    for device in DEVICES[:2]:
        made.join(device)
    return made


OPEN_EXCHANGE = (*fleet.PASSING, *(("join", device) for device in DEVICES), ("next_exchange",))
ORDERS = (
    *(("decide", Membership.approve, name) for name in NAMES),
    *(("decide", remove, name) for name in NAMES[1:4]),
)
TARGETS = (
    Target("dispatcher", partial(dispatcher, signed=False), MESSAGES, 10, steps=OPEN_EXCHANGE),
    Target(
        "signed-dispatcher",
        partial(dispatcher, signed=True),
        SIGNED_MESSAGES,
        6,
        steps=(*OPEN_EXCHANGE, *ORDERS),
    ),
    Target("senders", partial(limits, _sender_limits), SENDERS, 8),
    Target("request", RequestReader, REQUESTS, 5),
    Target(
        "enrolment",
        partial(Authority, signed=True),
        ENROLMENT,
        5,
        steps=ORDERS,
    ),
)
