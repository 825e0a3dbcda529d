"""Signed messages at random: most as a party of the fleet may sign them, others forged."""

from __future__ import annotations

import random
import struct
from typing import Any

import msgpack
from cryptography.exceptions import InvalidSignature

from benchmarks.fuzzing.fuzz_fleet import PARTIES, certificate_of, keys_of
from benchmarks.fuzzing.mutations import broken, strange_value
from benchmarks.fuzzing.random_messages import NOTHING, Pools, payload
from edgefed.transport.reading import Received
from edgefed.wire.messages import MESSAGES, Message

CONTEXT = b"edgefed message 3\0"


def signed_payload(
    draws: random.Random,
    topic: str,
    signer: str,
    kinds: tuple[type[Message], ...],
    pools: Pools = NOTHING,
    forged: float = 0.1,
) -> bytes:
    """Return the payload of a message that a party signs for a topic.

    Args:
        draws: random numbers.
        topic: where it is published.
        signer: the party.
        kinds: of messages, of which one is made; it may be wrong in a field, or broken as bytes.
        pools: values of fields.
        forged: share of messages whose proof is not the signer's for this topic.
    """
    plain = payload(draws, kinds, pools)
    try:
        version, kind, body = msgpack.unpackb(plain, use_list=False)
    except (ValueError, TypeError, msgpack.UnpackException):
        return plain
    if not (isinstance(kind, str) and isinstance(body, bytes)):
        return plain
    seal = _seal(signer, topic, kind, body, introduce=draws.random() < 0.7)
    if draws.random() < forged:
        seal = _forged(draws, topic, kind, body, seal)
    packed: bytes = msgpack.packb((version, kind, body, *seal))
    return broken(packed, draws) if draws.random() < forged / 3 else packed


def signed_bytes(topic: str, kind: str, body: bytes) -> bytes:
    """Return what a signature covers, as docs/protocol.md says."""
    parts = (topic.encode(), kind.encode(), body)
    return CONTEXT + b"".join(struct.pack("<I", len(part)) + part for part in parts)


def _seal(
    signer: str, topic: str, kind: str, body: bytes, *, introduce: bool = True
) -> tuple[Any, ...]:
    own = certificate_of(signer)
    signature = keys_of(signer).signing.sign(signed_bytes(topic, kind, body))
    return own.key_id, signature, own.der if introduce else b""


def _forged(
    draws: random.Random, topic: str, kind: str, body: bytes, right: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return a proof that somebody else made, or for something else, or parts of two."""
    another = draws.choice((*PARTIES,))
    wrong = (
        _seal(another, topic, kind, body),
        _seal(another, topic.replace("dev-1", "dev-2"), kind, body),
        _seal(another, topic, draws.choice(MESSAGES).kind, body),
        _seal(another, topic, kind, body + b"\0"),
        (right[0], right[1], broken(certificate_of(another).der, draws)),
        (right[0], broken(right[1], draws), right[2]),
        (draws.randbytes(8), right[1], right[2]),
        tuple(strange_value(draws) for _ in range(draws.choice((1, 2, 3, 4)))),
        (),
    )
    chosen = draws.choice(wrong)
    if len(chosen) == 3 and draws.random() < 0.4:
        chosen = tuple(draws.choice(pair) for pair in zip(chosen, right, strict=True))
    return chosen


def check_received(read: Received, topic: str, payload: bytes) -> None:
    """Check by other means that a message was signed by who may send it there.

    Raises:
        AssertionError: it was not.
    """
    parsed = read.topic
    if parsed.leaf == "c" or parsed.branch == "enrol":
        assert read.signer is None
        return
    _, kind, body, key, signature, _ = msgpack.unpackb(payload, use_list=False)
    user, role = _sender(parsed.branch, parsed.who, parsed.leaf)
    known = {certificate_of(name).key_id: certificate_of(name) for name in PARTIES}
    signer = known.get(key)
    assert signer is not None, "nobody has this key"
    assert signer in (certificate_of(name) for name in PARTIES if name != "stranger")
    assert signer != certificate_of("revoked"), "its certificate is revoked"
    assert read.signer == signer, "somebody else is said to have signed it"
    assert signer.role in role, "the role may not send this"
    assert user in ("", signer.user), "it speaks for another"
    try:
        signer.signing_key.verify(signature, signed_bytes(topic, kind, body))
    except InvalidSignature as error:
        raise AssertionError("the signature is wrong") from error


def _sender(branch: str, who: str, leaf: str) -> tuple[str, tuple[str, ...]]:
    """Return who alone may send on a topic, if there is one, and in which roles."""
    if branch == "up":
        return who, ("device",)
    if (branch, leaf) == ("control", "request"):
        return who.partition("/")[0], ("operator", "viewer")
    return "", ("coordinator",)
