"""Targets of signatures and encryption: signed messages, and data that devices seal."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from benchmarks.fuzzing.broker_message import join, split
from benchmarks.fuzzing.fuzz_fleet import (
    AUTHORITY,
    FLEET,
    PARTIES,
    certificate_of,
    credentials_of,
)
from benchmarks.fuzzing.mutations import broken
from benchmarks.fuzzing.signed_payloads import check_received, signed_payload
from benchmarks.fuzzing.targets import Reader, Target
from edgefed.errors import WireError
from edgefed.transport.reading import read_arrival
from edgefed.trust import sealed_data
from edgefed.trust.certificates import Certificate, Role
from edgefed.trust.credentials import Credentials
from edgefed.trust.sealed_data import Context, open_data, seal_data
from edgefed.trust.signatures import Seal, Verifier
from edgefed.wire.topics import TOPIC_SPECS, Topics, TopicSpec

TOPICS = Topics(FLEET)
WHO = {
    "all": ("",),
    "events": ("",),
    "up": ("dev-1", "dev-2", "dev-4", "nobody", "coordinator"),
    "down": ("dev-1", "dev-2"),
    "control": ("operator.ops/0", "viewer.eye/15", "local/7"),
    "enrol": ("client.abc",),
}


class NotingVerifier(Verifier):
    """A verifier that remembers why it refused the last message."""

    error: WireError | None = None

    def verify(
        self,
        topic: str,
        kind: str,
        body: bytes,
        seal: Seal | None,
        roles: tuple[Role, ...],
        user: str = "",
    ) -> Certificate:
        """Return who signed a message.

        Raises:
            WireError: it is not proven.
        """
        self.error = None
        try:
            return super().verify(topic, kind, body, seal, roles, user)
        except WireError as error:
            self.error = error
            raise


# -- signed messages --------------------------------------------------------------------------


def make_signed(draws: random.Random) -> bytes:
    """Return a message on any topic, signed by who may send it there or by another."""
    spec = draws.choice((*TOPIC_SPECS.values(),))
    topic = _topic(draws, spec)
    signer = _usual_signer(topic, spec) if draws.random() < 0.8 else draws.choice((*PARTIES,))
    return join(topic, signed_payload(draws, topic, signer, (spec.message,), forged=0.3), draws)


def _topic(draws: random.Random, spec: TopicSpec) -> str:
    levels = (TOPICS.root, spec.branch, draws.choice(WHO[spec.branch]), spec.leaf)
    if spec.branch == "events":
        levels = (TOPICS.root, "events", "", "")
    topic = "/".join(level for level in levels if level)
    return f"{topic}/{'0' * 64}/1" if spec.leaf == "c" else topic


def _usual_signer(topic: str, spec: TopicSpec) -> str:
    for device in ("dev-1", "dev-2"):
        if spec.branch == "up" and f"/{device}/" in topic:
            return device
    if spec.leaf == "request":
        return "viewer" if "viewer" in topic else "operator"
    return "revoked" if "dev-4" in topic else "coordinator"


@contextmanager
def signed(folder: Path) -> Iterator[Reader]:
    """Read messages of a signed fleet; each that is read is verified again by other means."""
    del folder
    verifier = NotingVerifier(certificate_of(AUTHORITY), certificate_of("revoked").__eq__)
    refused: list[str] = []

    def read(data: bytes) -> None:
        arrival = split(data)
        refused.clear()
        verifier.error = None
        found = read_arrival(
            TOPICS, arrival, lambda topic, reason: refused.append(reason), verifier
        )
        if found is not None:
            check_received(found, arrival.topic, arrival.payload)
        if verifier.error is not None:
            raise verifier.error
        if refused:
            raise WireError(refused[0], code="wire.malformed")

    yield read


# -- sealed data ------------------------------------------------------------------------------

MARK = b"sealed by the fuzzer"
CONTEXTS = tuple(
    Context("r-1", exchange, sender, receiver)
    for exchange in ("r-1-0", "r-1-1")
    for sender, receiver in (("dev-2", "dev-1"), ("dev-1", "dev-2"), ("dev-3", "dev-1"))
)
OPENED = CONTEXTS[0]


def make_sealed(draws: random.Random) -> bytes:
    """Return data sealed for a device, in its context or another, or by a sender who cheats."""
    key = X25519PrivateKey.from_private_bytes(draws.randbytes(32))
    context = OPENED if draws.random() < 0.7 else draws.choice(CONTEXTS)
    told = draws.randbytes(draws.choice((0, 1, 40, 3000)))
    data = MARK + hashlib.sha256(told).digest() + told
    if draws.random() < 0.4:
        return _sealed_by_cheat(draws, key, context, data)
    own = credentials_of(context.sender)
    made = seal_data(own, certificate_of(context.receiver), context, data, lambda: key)
    return broken(made, draws) if draws.random() < 0.7 else made


def _sealed_by_cheat(
    draws: random.Random, key: X25519PrivateKey, context: Context, data: bytes
) -> bytes:
    """Return what decrypts, with a certificate, a signature or a length inside that is wrong."""
    receiver = certificate_of(context.receiver)
    assert receiver.encryption_key is not None
    sender: Credentials = credentials_of(draws.choice((*PARTIES,)))
    covered = sealed_data._signed(context, receiver.fingerprint, data)
    parts = [sender.certificate.der, sender.keys.signing.sign(covered), data]
    if draws.random() < 0.7:
        at = draws.randrange(3)
        parts[at] = broken(parts[at], draws)
    length = len(parts[0]) if draws.random() < 0.8 else draws.randrange(2**16)
    plain = struct.pack("<H", length) + b"".join(parts)
    if draws.random() < 0.2:
        plain = plain[: draws.randrange(len(plain))]
    public = key.public_key().public_bytes_raw()
    secret = sealed_data._key(
        key.exchange(receiver.encryption_key), public, receiver.encryption_key
    )
    return public + ChaCha20Poly1305(secret).encrypt(bytes(12), plain, context.packed())


@contextmanager
def sealed(folder: Path) -> Iterator[Reader]:
    """Open sealed data; what opens is what its sender has signed as a whole."""
    del folder
    own = credentials_of("dev-1")

    def read(data: bytes) -> None:
        opened = open_data(own, OPENED, data)
        mark, told = opened[: len(MARK)], opened[len(MARK) + 32 :]
        assert mark == MARK, "the sender never signed this"
        assert opened[len(MARK) : len(MARK) + 32] == hashlib.sha256(told).digest()

    yield read


TARGETS = (
    Target("signed", make_signed, signed, 12, "wire"),
    Target("sealed", make_sealed, sealed, 6, "wire"),
)
