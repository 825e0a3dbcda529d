"""Targets of a coordinator with an authority: signed messages, membership, orders, enrolment."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.fuzzing.broker_message import UnconnectedLink, decode_again, join, split
from benchmarks.fuzzing.coordinator_target import (
    ACTIONS,
    ARGUMENTS,
    KINDS,
    POOLS,
    SESSIONS,
    TOPICS,
    RefusingService,
    end,
    make_dispatcher,
    take,
)
from benchmarks.fuzzing.fuzz_clock import FuzzClock
from benchmarks.fuzzing.fuzz_devices import fuzz_actions, fuzz_diagnostics
from benchmarks.fuzzing.fuzz_fleet import (
    FLEET,
    PARTIES,
    certificate_of,
    credentials_of,
    keys_of,
    saved_authority,
)
from benchmarks.fuzzing.mutations import broken, strange_value
from benchmarks.fuzzing.random_messages import Pools, payload
from benchmarks.fuzzing.signed_payloads import signed_payload
from benchmarks.fuzzing.signed_target import NotingVerifier
from benchmarks.fuzzing.targets import Reader, Target
from edgefed.coordinator.challenges import Challenges
from edgefed.coordinator.device_registry import DeviceRegistry
from edgefed.coordinator.enrolment_orders import enrolment_actions
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.membership import Membership, MembershipSettings
from edgefed.coordinator.membership_messages import MembershipMessages
from edgefed.coordinator.pending_exchanges import PendingExchange
from edgefed.coordinator.request_actions import Action
from edgefed.coordinator.request_handler import RequestHandler
from edgefed.coordinator.store import Store
from edgefed.errors import EdgeFedError, NotAllowedError
from edgefed.transport.inbox import Inbox, InboxCounts
from edgefed.trust.authority import AUTHORITY_FOLDER
from edgefed.trust.certificates import Role
from edgefed.trust.issuing import make_request
from edgefed.trust.tokens import Token
from edgefed.wire.enrolment_messages import (
    EnrolmentRequest,
    EnrolmentResponse,
    Leave,
    RenewalRequest,
    sealed,
    signed_request,
)
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import MESSAGES, Chunk, Request

DEVICES = ("dev-1", "dev-2", "dev-3", "dev-4")
EACH = 60
"""Inputs after which those who have left are members again, and used tokens are new."""

INVITED: tuple[tuple[Role, str], ...] = (
    ("device", "new-1"),
    ("device", "new-2"),
    ("operator", "new"),
    ("device", ""),
    ("device", ""),
    ("device", "expired"),
)
"""For whom tokens are; the holders of those without a name choose one."""

OFFERED: Pools = {"name": ("", "new-1", "cam-1", "dev-1", "coordinator", "authority")}


@lru_cache
def tokens() -> tuple[Token, ...]:
    """Return tokens whose secrets are known, and at the end one that nobody gave out."""
    authority = certificate_of("authority").public_bytes
    words = [name for _, name in INVITED]
    return tuple(
        Token(authority, hashlib.sha256(b"%d" % i).digest()[:16], "127.0.0.1", 2, FLEET, name)
        for i, name in enumerate((*words, "unknown"))
    )


@lru_cache
def requests_for_certificates() -> tuple[bytes, ...]:
    """Return requests for certificates of several keys, one with a long name."""
    names = ("new-1", "new-2", "cam-1", "dev-1", "x" * 60)
    return tuple(make_request(keys_of(f"key {name}"), name) for name in names)


def _request_for_certificate(draws: random.Random) -> bytes:
    chosen = draws.choice(requests_for_certificates())
    return broken(chosen, draws)[:2048] if draws.random() < 0.3 else chosen


# -- a dispatcher that verifies ---------------------------------------------------------------

MORE_ACTIONS = (
    *("member.list", "member.invite", "member.approve", "member.reject", "member.remove"),
)


def make_arrival(draws: random.Random) -> bytes:
    """Return a message that a malicious device or an operator signs, or that is forged."""
    device, kind = draws.choice((*DEVICES, "dev-1")), draws.random()
    signer = "revoked" if device == "dev-4" else device
    if kind < 0.1:
        return join(TOPICS.up_chunk(device), payload(draws, (Chunk,), POOLS), draws)
    if kind < 0.2:
        return _order(draws)
    if kind < 0.25:
        return _enrolling(draws)
    leaves: dict[str, type[Any]] = {**KINDS, "renewal": RenewalRequest, "leave": Leave}
    leaf = draws.choice((*KINDS, *KINDS, *leaves))
    kinds = (leaves[leaf],) if draws.random() < 0.97 else MESSAGES
    pools = {**POOLS, "request": (_request_for_certificate(draws),)}
    topic = f"{TOPICS.root}/up/{device}/{leaf}"
    return join(topic, signed_payload(draws, topic, signer, kinds, pools), draws)


def _order(draws: random.Random) -> bytes:
    user, signer = draws.choice((("operator.ops", "operator"), ("viewer.eye", "viewer")))
    names = draws.sample((*ARGUMENTS, "name", "user", "role", "seconds"), draws.randrange(4))
    values: tuple[Any, ...] = (*DEVICES, "r-1", "device", "viewer", "new-1", 60.0, "open")
    arguments = {
        name: draws.choice(values) if draws.random() < 0.7 else strange_value(draws)
        for name in names
    }
    pools: Pools = {
        **POOLS,
        "action": (*ACTIONS, *MORE_ACTIONS, *MORE_ACTIONS),
        "challenge": ("0" * 8,),
        "arguments": (arguments,),
    }
    topic = TOPICS.request(f"{user}/0")
    return join(topic, signed_payload(draws, topic, signer, (Request,), pools), draws)


def _enrolling(draws: random.Random) -> bytes:
    token = draws.choice(tokens())
    return join(TOPICS.enrolment_request(token.id), _asked(draws, token), draws)


def open_membership(folder: Path, clock: FuzzClock) -> Membership:
    """Return a fleet's members: an authority on disk, its devices, and open invitations."""
    saved_authority(folder / AUTHORITY_FOLDER)
    settings = MembershipSettings(folder, timedelta(days=30), lambda users, revoked: None)
    membership = Membership(settings, clock)
    membership._enrolment._random_bytes = random.Random(1).randbytes
    return membership


def reset_members(membership: Membership, clock: FuzzClock) -> None:
    """Make the known parties members again, and give out the tokens that are known anew."""
    parties, enrolment = membership.parties, membership._enrolment
    for user in {each.user for each in parties.all() if each.state == "enrolled"}:
        parties.revoke(user, "removed")
    everybody = parties._store.invitations()
    parties._store.write([], delete=[*everybody, *parties._store.issued()])
    parties._issued.clear()
    enrolment._invitations.clear()
    for name in PARTIES:
        if name not in ("broker", "stranger", "renewed", "revoked"):
            parties.register(certificate_of(name))
    secrets = iter(token.secret for token in tokens())
    enrolment._random_bytes = lambda count: next(secrets)
    for role, name in INVITED:
        enrolment.invite(role, name, -1.0 if name == "expired" else 10.0**6)
    enrolment._random_bytes = random.Random(clock.monotonic()).randbytes


def _handler(
    store: Store,
    journal: EventJournal,
    challenges: Challenges,
    more: Mapping[str, Action],
) -> RequestHandler:
    """Return what answers requests; only those about members and devices have an effect."""
    return RequestHandler(
        "c" * 16,
        store,
        journal,
        RefusingService(),
        challenges,
        InboxCounts,
        lambda name: None,
        more,
    )


def _verifier(membership: Membership) -> NotingVerifier:
    accepts = membership.parties.accepts
    return NotingVerifier(certificate_of("authority"), lambda found: not accepts(found))


@contextmanager
def dispatcher(folder: Path) -> Iterator[Reader]:
    """Hand signed messages to a dispatcher with an authority, whose requests are answered."""
    clock, journal = FuzzClock(), EventJournal(FLEET, FuzzClock())
    store = Store(folder / "store", durable=False)
    membership = open_membership(folder / "trust", clock)
    link = UnconnectedLink(Inbox[NoReturn](clock), credentials_of("coordinator"))
    enrolled = membership.parties.is_enrolled
    registry = DeviceRegistry(journal, clock, enrolled=enrolled)
    members = MembershipMessages(
        membership, link, None, TOPICS, journal, registry.session, registry.remove, clock
    )
    verifier = _verifier(membership)
    challenges = Challenges(clock, lambda: "0" * 8)
    diagnostics = fuzz_diagnostics(link, TOPICS, registry, journal, clock)
    diagnostics.expect(POOLS["nonce"], DEVICES, SESSIONS[0])
    actions = fuzz_actions(registry, journal, clock, diagnostics)
    handler = _handler(store, journal, challenges, {**actions, **enrolment_actions(members)})

    def answer(client: str, request: Request, signer: Any) -> None:
        challenges.issue("")
        for part in handler.answer(request, signer):
            link.send(TOPICS.response(client), part)

    made = make_dispatcher(
        folder,
        clock,
        link,
        store,
        journal=journal,
        registry=registry,
        on_request=answer,
        verifier=verifier,
        enrolled=enrolled,
        members=members,
        on_diagnostic=diagnostics.take,
    )
    exchanges: list[PendingExchange] = []
    count = itertools.count()

    def read(data: bytes) -> None:
        if next(count) % EACH == 0:
            reset_members(membership, clock)
        verifier.error = None
        take(made, exchanges, clock, data)
        link.forget()
        if verifier.error is not None:
            raise verifier.error
        decode_again(TOPICS, split(data))

    yield read
    end(made, store)
    membership.close()


ASKED_ROLES: tuple[tuple[Role, ...], ...] = (("device",), ("operator", "viewer"))
"""Of the two programs that enrol."""

# -- enrolment --------------------------------------------------------------------------------


def make_enrolment(draws: random.Random) -> bytes:
    """Return the number of a token, and a request for a certificate, proven by it or not."""
    token = draws.choice(tokens())
    return token.id.encode() + _asked(draws, token)


def _asked(draws: random.Random, token: Token) -> bytes:
    name = token.name if draws.random() < 0.5 else draws.choice(OFFERED["name"])
    if draws.random() < 0.2:
        return payload(draws, (EnrolmentRequest,), {"request": (_request_for_certificate(draws),)})
    prover = token if draws.random() < 0.9 else draws.choice(tokens())
    roles = draws.choice(ASKED_ROLES)
    asked = signed_request(name, _request_for_certificate(draws), prover.proof_key, roles)
    data = encode(asked)
    return broken(data, draws) if draws.random() < 0.2 else data


@contextmanager
def enrolment(folder: Path) -> Iterator[Reader]:
    """Answer the holders of tokens, some of whom are approved; certificates need a token."""
    clock = FuzzClock()
    membership = open_membership(folder, clock)
    known = {token.id: token for token in tokens()}
    number = 0

    def read(data: bytes) -> None:
        nonlocal number
        clock.move(0.1)
        if number % EACH == 0:
            reset_members(membership, clock)
        number += 1
        id_, asked = data[:20].decode("latin-1"), decode(data[20:], EnrolmentRequest)
        answer = membership.answer(id_, asked)
        assert answer is not None, "no request is dropped at this rate"
        assert decode(encode(answer), EnrolmentResponse) == answer
        _check_answer(known.get(id_), asked, answer)
        if answer.status == "pending" and number % 3 == 0:
            with suppress(EdgeFedError):
                membership.approve(answer.name)
        if answer.status == "refused":
            raise NotAllowedError(answer.reason, code=answer.code)

    yield read
    membership.close()


def _check_answer(token: Token | None, asked: EnrolmentRequest, answer: EnrolmentResponse) -> None:
    """Check that only the holder of a token gets more than a refusal, and for its own name."""
    if answer.status == "refused":
        return
    assert token is not None
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
        assert (
            answer.proof == sealed(answer.model_copy(update={"proof": b""}), token.proof_key).proof
        )


TARGETS = (
    Target("signed-dispatcher", make_arrival, dispatcher, 6, "wire"),
    Target("enrolment", make_enrolment, enrolment, 5, "wire"),
)
