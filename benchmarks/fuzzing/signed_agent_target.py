"""Targets of a device with a certificate: its agent, and the answer that it enrols with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.fuzzing.agent_target import (
    DEVICE,
    KINDS,
    POOLS,
    SESSION,
    TOPICS,
    end,
    take,
    unconnected_agent,
    with_algorithm,
)
from benchmarks.fuzzing.broker_message import decode_again, join, split
from benchmarks.fuzzing.fuzz_clock import FuzzClock
from benchmarks.fuzzing.fuzz_fleet import (
    BROKER,
    PARTIES,
    certificate_of,
    credentials_of,
    keys_of,
    saved_credentials,
)
from benchmarks.fuzzing.mutations import broken
from benchmarks.fuzzing.random_messages import Pools, payload
from benchmarks.fuzzing.signed_coordinator_target import tokens
from benchmarks.fuzzing.signed_payloads import signed_payload
from benchmarks.fuzzing.signed_target import NotingVerifier
from benchmarks.fuzzing.targets import Reader, Target
from device_agent.identity import agent_verifier
from device_agent.renewal import RENEWALS, Renewal
from edgefed.config.address import Address
from edgefed.control.enrolment_client import Applicant, _credentials, _is_genuine
from edgefed.errors import NotAllowedError
from edgefed.files import write_atomic
from edgefed.trust.credentials import ENCRYPTION, KEY, private_pem
from edgefed.trust.sealed_data import Context, seal_data
from edgefed.wire.enrolment_messages import EnrolmentResponse, IssuedCertificate, Leave, sealed
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import MESSAGES, Birth, Chunk, CoordinatorState
from edgefed.wire.tensors import digest

EACH = 200
"""Inputs after which a device that was renewed waits for its next certificate again."""


# -- an agent that verifies -------------------------------------------------------------------


@lru_cache
def _relayed() -> tuple[bytes, bytes]:
    """Return data that another device sealed for the agent, and the same damaged."""
    key = X25519PrivateKey.from_private_bytes(bytes(range(32)))
    context = Context("r-1", "r-1-0", "dev-2", DEVICE)
    made = seal_data(
        credentials_of("dev-2"), certificate_of(DEVICE), context, b"mix" * 9, lambda: key
    )
    return made, made[:-1] + b"\0"


def _certificate(draws: random.Random) -> bytes:
    found = certificate_of(draws.choice(("renewed", "renewed", *PARTIES))).der
    return broken(found, draws)[:2048] if draws.random() < 0.2 else found


def make_arrival(draws: random.Random) -> bytes:
    """Return a message that a malicious coordinator signs, or that is forged."""
    kind = draws.random()
    if kind < 0.1:
        return join(TOPICS.down_chunk(DEVICE), payload(draws, (Chunk,), POOLS), draws)
    if kind < 0.2:
        topic, signer = TOPICS.coordinator(), "coordinator"
        made = signed_payload(draws, topic, signer, (CoordinatorState,), POOLS)
        return join(topic, made, draws)
    if kind < 0.25:
        own: Pools = {**POOLS, "session": (SESSION,)}
        topic = TOPICS.birth(DEVICE)
        return join(topic, signed_payload(draws, topic, DEVICE, (Birth,), own), draws)
    leaves: dict[str, type[Any]] = {**KINDS, "certificate": IssuedCertificate, "leave": Leave}
    leaf = draws.choice(("task", "task", *leaves))
    kinds = (leaves[leaf],) if draws.random() < 0.97 else MESSAGES
    topic = f"{TOPICS.root}/down/{DEVICE}/{leaf}"
    return join(topic, signed_payload(draws, topic, "coordinator", kinds, _pools(draws)), draws)


def _pools(draws: random.Random) -> Pools:
    whole, damaged = _relayed()
    relays = [
        {"exchange": "r-1-0", "sender": "dev-2", "digest": digest(data), "size": len(data)}
        for data in (whole, damaged)
    ]
    wrong = {**relays[0], "sender": "dev-3"}
    return {
        **with_algorithm(draws),
        "relays": ([], [], relays[:1], relays, [wrong]),
        "certificates": ({}, {"dev-2": certificate_of("dev-2").der}, {"dev-2": b"x"}),
        "certificate": (_certificate(draws),),
    }


@contextmanager
def agent(folder: Path) -> Iterator[Reader]:
    """Hand signed messages to an agent with credentials, which are renewed now and then."""
    clock, number = FuzzClock(), 0
    credentials = saved_credentials(DEVICE, folder / "trust")
    renewal = Renewal(credentials, clock)
    made = unconnected_agent(folder / "state", clock, renewal, _relayed())
    address = Address("127.0.0.1", 1, tls=True, credentials=credentials)
    judge = agent_verifier(address, folder / "state", clock)
    assert judge is not None
    verifier = made._verifier = NotingVerifier(judge.authority, judge.is_revoked)
    waiting = folder / "trust" / RENEWALS / DEVICE

    def read(data: bytes) -> None:
        nonlocal number
        if number % EACH == 0:
            keys = keys_of("renewed")
            write_atomic(waiting / KEY, private_pem(keys.signing))
            write_atomic(waiting / ENCRYPTION, private_pem(keys.encryption))
        number += 1
        verifier.error = None
        take(made, clock, data, _relayed())
        assert renewal.current().certificate in map(certificate_of, (DEVICE, "renewed"))
        if verifier.error is not None:
            raise verifier.error
        decode_again(TOPICS, split(data))

    yield read
    end(made)


# -- the answer to a token --------------------------------------------------------------------


def make_answer(draws: random.Random) -> bytes:
    """Return an answer to the holder of the first token, proven by it or not, or broken."""
    named = draws.random() < 0.8
    told = {
        "status": draws.choice(("enrolled", "enrolled", "pending", "refused")),
        "code": draws.choice(("", "enrol.used", "enrol.unknown_token", "trust.name")),
        "reason": draws.choice(("", "No.", "\x1b[2J")),
        "name": draws.choice(("new-1", "cam-1", "dev-1")),
        "role": draws.choice(("device", "coordinator")),
        "broker": draws.choice((BROKER, "", "mqtt://x", "\x00")),
        "certificate": _certificate_for(draws, "dev-1" if named else ""),
        "authority": certificate_of(draws.choice(("authority", "authority", "dev-1"))).der,
    }
    if draws.random() < 0.2:
        return payload(
            draws, (EnrolmentResponse,), {name: (value,) for name, value in told.items()}
        )
    token = draws.choice((*tokens()[:1] * 9, tokens()[1]))
    made = encode(sealed(EnrolmentResponse.model_validate(told), token.proof_key))
    return broken(made, draws) if draws.random() < 0.2 else made


def _certificate_for(draws: random.Random, usual: str) -> bytes:
    chosen = usual or draws.choice((*PARTIES,))
    found = certificate_of(chosen).der
    return broken(found, draws)[:2048] if draws.random() < 0.3 else found


@contextmanager
def answers(folder: Path) -> Iterator[Reader]:
    """Take the answers to a token; credentials come from its authority only, for the own key."""
    keys, clock, first = keys_of("dev-1"), FuzzClock(), tokens()[0]
    token = type(first)(first.authority_key, first.secret, first.host, first.port, first.fleet)
    applicant = Applicant(token, "dev-1", ("device",), folder)

    def read(data: bytes) -> None:
        answer = decode(data, EnrolmentResponse)
        if not _is_genuine(answer, token):
            raise NotAllowedError("It is not proven.", code="enrol.unproven")
        if answer.status == "refused":
            raise NotAllowedError(answer.reason or "None.", code=answer.code or "enrol.refused")
        if answer.status == "enrolled":
            made = _credentials(applicant, keys, answer, clock.now())
            assert made.certificate.signing_key == keys.signing.public_key()
            assert made.certificate in map(certificate_of, PARTIES), "nobody issued this"
            assert made.certificate.role == "device"
            assert made.authority.signing_key == keys_of("authority").signing.public_key()

    yield read


TARGETS = (
    Target("signed-agent", make_arrival, agent, 5, "wire"),
    Target("answer", make_answer, answers, 4, "wire"),
)
