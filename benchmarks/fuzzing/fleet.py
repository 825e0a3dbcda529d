"""A fleet whose clock, keys and connections are under control, so that inputs can be made again.

Keys come from the names of their holders, and certificates always have the same serial numbers, so
that they stay equal to those in the corpus.
"""

from __future__ import annotations

import hashlib
import random
import struct
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import paho.mqtt.client as paho
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.fuzzing.strategies import STRANGE, Seal, broken
from edgefed.config.values.address import Address
from edgefed.simulator.virtual_time import VirtualClock
from edgefed.transport.inbox import Inbox, Incoming, _signer
from edgefed.transport.link import Link
from edgefed.trust.authority import Authority, save_authority
from edgefed.trust.certificates import Certificate, Role, user_of
from edgefed.trust.credentials import Credentials, save_credentials
from edgefed.trust.issuing import KeyPair, issue, make_authority
from edgefed.trust.signatures import Signer, Verifier
from edgefed.wire import limits
from edgefed.wire.envelope import decode_body, open_envelope
from edgefed.wire.messages import MESSAGES
from edgefed.wire.topics import Topics

FLEET = "fuzz"
TOPICS = Topics(FLEET)
BROKER = "mqtts://127.0.0.1:1"
BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
LIFE = timedelta(days=3600)
CONTEXT = b"edgefed message 3\0"

AUTHORITIES = {
    "authority": 0x42D2174EBEC4D01C932E53B383E0F5F2C46885E6,
    "other-authority": 1,
}
PARTIES: dict[str, tuple[Role, str, int]] = {
    "coordinator": ("coordinator", "", 0x4066375B39DF9B8BC5820DC5A691C49457674FA8),
    "operator": ("operator", "ops", 0x351CB0370F55B90317A604D5155A51C5E1B0AF1),
    "viewer": ("viewer", "eye", 0x383E93A7D065FE4071D43A10D75CF68AC3689596),
    "broker": ("broker", "", 0x555B160D9C9231D735045C66546217D1FF87563D),
    "dev-1": ("device", "dev-1", 0x5D252AD2BB30F295861D55AE7088F45481695BAD),
    "dev-2": ("device", "dev-2", 0x4528D6F243158A55874FFE1D8B9DEA4C6A15C4AE),
    "dev-3": ("device", "dev-3", 0x6054F7192CDACB37522ADB9A099F4871D06AEE1A),
    "renewed": ("device", "dev-1", 0x7BE98AA3E9695B53C560A20053667998B08409ED),
    "revoked": ("device", "dev-4", 0x5E4953BAFEDD5BB66C14CE0258442E2A927264E5),
    "stranger": ("device", "dev-1", 0x17825F42114077711EAC0A59E0EE9196C6318873),
}
"""All signers, with the serial numbers of their certificates: ``renewed`` has dev-1's next
certificate, ``stranger`` another fleet's."""

CLIENTS = {"operator.ops/0": "operator", "viewer.eye/15": "viewer"}


class FuzzClock(VirtualClock):
    """A clock that stops until it is moved."""

    def __init__(self) -> None:
        super().__init__(BEGIN)
        self.move(1000.0)

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self.advance(self.monotonic() + seconds)


PASSING = tuple(("clock.move", seconds) for seconds in (1.0, 20.0, 300.0))
"""Steps of a target: time passes."""


class UnconnectedLink(Link):
    """A link that accepts messages to publish, and never sends them."""

    def __init__(self, inbox: Inbox[Any], credentials: Credentials | None = None) -> None:
        super().__init__(Address("127.0.0.1", 1), FLEET, inbox.put)
        self._up.set()
        if credentials is not None:
            self.renew(credentials)

    def renew(self, credentials: Credentials) -> None:
        """Sign with other credentials from now on."""
        self.signer = Signer(credentials)

    def publish(
        self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False
    ) -> paho.MQTTMessageInfo:
        """Check a message as the link does; it counts as acknowledged."""
        del topic, qos, retain
        assert len(payload) <= limits.MAX_MESSAGE_BYTES
        self.sent += len(payload)
        info = paho.MQTTMessageInfo(1)
        info._set_as_published()
        return info


def split(data: bytes) -> Incoming:
    """Return the message of an input."""
    topic, _, payload = data[1:].partition(b"\n")
    return Incoming(topic.decode("utf-8", "replace"), payload, retained=data[:1] == b"r")


def read_again(data: bytes, verifier: Verifier | None = None) -> None:
    """Read a message that a handler has processed, whose errors it only logs.

    Raises:
        WireError: its signature is refused, or it is not a message of its topic.
    """
    arrival = split(data)
    parsed = TOPICS.parse(arrival.topic)
    if parsed is not None and arrival.payload:
        envelope = open_envelope(arrival.payload)
        _signer(parsed, arrival.topic, envelope, verifier)
        decode_body(envelope, parsed.spec.message)


# -- keys and certificates --------------------------------------------------------------------


@lru_cache
def keys_of(party: str) -> KeyPair:
    """Return the private keys of a party."""
    seeds = (hashlib.sha256(f"{use} {party}".encode()).digest() for use in ("sign", "encrypt"))
    signing, encryption = seeds
    return KeyPair(
        Ed25519PrivateKey.from_private_bytes(signing),
        X25519PrivateKey.from_private_bytes(encryption),
    )


@lru_cache
def certificate_of(party: str) -> Certificate:
    """Return the certificate of an authority or of a party."""
    keys = keys_of(party)
    if party in AUTHORITIES:
        with patch.object(x509, "random_serial_number", return_value=AUTHORITIES[party]):
            return make_authority(keys.signing, FLEET, BEGIN, timedelta(days=3650))
    issuer = "other-authority" if party == "stranger" else "authority"
    role, name, serial = PARTIES[party]
    authority = certificate_of(issuer)
    with patch.object(x509, "random_serial_number", return_value=serial):
        return issue(
            authority,
            keys_of(issuer).signing,
            role=role,
            name=name,
            signing_key=keys.signing.public_key(),
            encryption_key=keys.encryption.public_key(),
            now=BEGIN,
            life=LIFE,
            hosts=("127.0.0.1",) if role == "broker" else (),
        )


@lru_cache
def credentials_of(party: str, folder: Path = Path("unsaved")) -> Credentials:
    """Return the credentials of a party, which are not on disk."""
    own, authority = certificate_of(party), certificate_of("authority")
    return Credentials(folder, keys_of(party), own, authority, FLEET, BROKER)


def saved_credentials(party: str, trust: Path) -> Credentials:
    """Return the credentials of a party, written below a folder."""
    return save_credentials(credentials_of(party, trust / certificate_of(party).user))


def saved_authority(folder: Path) -> Path:
    """Return a folder with the fleet's authority."""
    own = keys_of("authority").signing
    folder.mkdir(parents=True)
    save_authority(
        Authority(own, certificate_of("authority"), FLEET, BROKER, ("127.0.0.1",)), folder
    )
    return folder


def damaged_certificate(party: str, draws: random.Random) -> bytes:
    """Return the certificate of a party as bytes, now and then broken."""
    found = certificate_of(party).der
    return broken(found, draws)[:2048] if draws.random() < 0.2 else found


# -- signatures -------------------------------------------------------------------------------


def signed_bytes(topic: str, kind: str, body: bytes) -> bytes:
    """Return what a signature covers, as docs/protocol.md says."""
    parts = (topic.encode(), kind.encode(), body)
    return CONTEXT + b"".join(struct.pack("<I", len(part)) + part for part in parts)


def usual_signer(topic: str) -> str:
    """Return the party that may sign messages on a topic."""
    parsed = TOPICS.parse(topic)
    if parsed is None or parsed.branch not in ("up", "control") or parsed.leaf == "response":
        return "coordinator"
    users = {user_of(role, name): party for party, (role, name, _) in reversed(PARTIES.items())}
    return users.get(parsed.user, "dev-2")


def sealing(forged: float, other_signer: float = 0.0) -> Seal:
    """Return a function that signs messages.

    Args:
        forged: share of messages whose proof is not the signer's for their topic.
        other_signer: share of messages that any party signs.
    """

    def seal(topic: str, kind: str, body: bytes, draws: random.Random) -> tuple[Any, ...]:
        party = usual_signer(topic)
        if draws.random() < other_signer:
            party = draws.choice((*PARTIES,))
        right = _seal(party, topic, kind, body)
        if draws.random() < 0.3:
            right = (*right[:2], b"")
        return _forged(draws, topic, kind, body, right) if draws.random() < forged else right

    return seal


def _seal(signer: str, topic: str, kind: str, body: bytes) -> tuple[Any, ...]:
    own = certificate_of(signer)
    return own.key_id, keys_of(signer).signing.sign(signed_bytes(topic, kind, body)), own.der


def _forged(
    draws: random.Random, topic: str, kind: str, body: bytes, right: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return a proof by another party, or for another message, or parts of two."""
    another = draws.choice((*PARTIES,))
    signed = (
        (topic, kind, body),
        (topic.replace("dev-1", "dev-2"), kind, body),
        (topic, draws.choice(MESSAGES).kind, body),
        (topic, kind, body + b"\0"),
    )
    wrong = (
        (right[0], right[1], broken(certificate_of(another).der, draws)),
        (right[0], broken(right[1], draws), right[2]),
        (draws.randbytes(8), right[1], right[2]),
        tuple(draws.choices(STRANGE, k=draws.choice((1, 2, 3, 4)))),
        (),
    )
    number = draws.randrange(len(signed) + len(wrong))
    chosen = _seal(another, *signed[number]) if number < 4 else wrong[number - 4]
    if len(chosen) == 3 and draws.random() < 0.4:
        chosen = tuple(draws.choice(pair) for pair in zip(chosen, right, strict=True))
    return chosen
