"""Targets that decode bytes from the network: messages, tensors, certificates and sealed data."""

from __future__ import annotations

import hashlib
import random
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgpack
import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import strategies as st

from benchmarks.fuzzing import fleet
from benchmarks.fuzzing.fleet import PARTIES, TOPICS, certificate_of, credentials_of
from benchmarks.fuzzing.running import Reader, Target, always
from benchmarks.fuzzing.strategies import (
    arrivals,
    broken,
    lane_topic,
    mostly_broken,
    payloads,
    siblings,
)
from edgefed.errors import EdgeFedError, WireError
from edgefed.transport.inbox import Received, read_arrival
from edgefed.trust import sealed_data
from edgefed.trust.certificates import read_certificate
from edgefed.trust.issuing import make_request, read_request
from edgefed.trust.sealed_data import SealContext, open_data, seal_data
from edgefed.trust.signatures import Verifier
from edgefed.wire.chunk_staging import Staging
from edgefed.wire.codecs import CODECS
from edgefed.wire.codecs import decode as decode_tensors
from edgefed.wire.diagnostic_messages import DIAGNOSTIC_MESSAGES
from edgefed.wire.enrolment_messages import ENROLMENT_MESSAGES
from edgefed.wire.envelope import decode
from edgefed.wire.exact_patches import apply_exact, encode_exact, is_exact
from edgefed.wire.limits import CHUNK_BYTES
from edgefed.wire.messages import MESSAGES, BlobRef
from edgefed.wire.patch_assembly import assemble, route
from edgefed.wire.patches import apply_patch
from edgefed.wire.tensors import Array, digest, pack, specs_of, unpack
from edgefed.wire.topics import TOPIC_SPECS

MAX_BYTES = 2**24
"""Most bytes that tensors may take here."""

# -- messages and topics ----------------------------------------------------------------------

EVERY = (*MESSAGES, *DIAGNOSTIC_MESSAGES, *ENROLMENT_MESSAGES)
MESSAGE = st.one_of([payloads(model, {}) for model in EVERY])

WHO: dict[str, tuple[str, ...]] = {
    "all": ("",),
    "events": ("",),
    "up": ("dev-1", "dev-2", "dev-4", "nobody", "coordinator"),
    "down": ("dev-1", "dev-2"),
    "control": (*fleet.CLIENTS, "local/7"),
    "enrol": ("abc",),
}
PLACES = [(spec, who) for spec in TOPIC_SPECS.values() for who in WHO[spec.branch]]
TOPIC = mostly_broken(
    st.sampled_from(
        [
            *(lane_topic(TOPICS, *place) for place in PLACES),
            TOPICS.root + "/up" * 300,
            "edgefed/x/up",
        ]
    ).map(str.encode)
)


def read_topic(data: bytes) -> None:
    """Parse a topic; one that is parsed names a message."""
    parsed = TOPICS.parse(data.decode("utf-8", "surrogateescape"))
    assert parsed is None or parsed.spec.message is not None


# -- tensors ----------------------------------------------------------------------------------

SEEDS = range(64)


@lru_cache(maxsize=64)
def _arrays(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    kinds = (np.float32, np.int8, np.int64, np.float16, np.bool_)
    return {
        f"t{number}": (4 * rng.standard_normal(shape)).astype(kinds[(seed + number) % len(kinds)])
        for number, shape in enumerate([(3, 4), (), (7,), (2, 1, 5)][: 1 + seed % 4])
    }


@lru_cache(maxsize=512)
def _coded(codec: str, seed: int) -> bytes:
    return CODECS[codec].encode(_arrays(seed), np.random.Generator(np.random.Philox(seed)))


CODED = st.tuples(st.sampled_from((*CODECS,)), st.sampled_from(SEEDS))


def read_patch(data: bytes) -> None:
    """Apply a patch to the weights that its first byte names, alone and as a task names it."""
    base = _arrays(data[0] % 64 if data else 0)
    whole, change = pack(base), data[1:]
    name, patch = digest(whole), digest(change)
    held = {name: whole, patch: change}
    ref = BlobRef.model_validate(
        {
            "digest": "0" * 64,
            "size": 2 * len(whole) + len(data),
            "patches": ({"base": name, "blob": patch, "size": max(1, len(change))},),
        }
    )
    if is_exact(change):
        apply_exact(change, base, specs_of(base), max_bytes=MAX_BYTES)
    else:
        apply_patch(base, decode_tensors(change, None, max_bytes=MAX_BYTES))
    assemble(ref, route(ref, held.__contains__), held.__getitem__, specs_of(base))


def make_patch(coded: tuple[str, int], draws: random.Random) -> bytes:
    """Return a seed of the weights that are held, then a patch, mostly for such weights."""
    held = coded[1] if draws.random() < 0.7 else draws.choice(SEEDS)
    exact = draws.random() < 0.3
    data = encode_exact(None, _arrays(coded[1])) if exact else _coded(*coded)
    return bytes([held]) + (broken(data, draws) if draws.random() < 0.5 else data)


SIZES = (0, 1, 5, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 2**32, 2**62)


def make_chunks(size: int, draws: random.Random) -> bytes:
    """Return a blob's size and numbers, of which each stands for a chunk that comes."""
    return size.to_bytes(8, "big") + draws.randbytes(draws.choice((0, 1, 4, 12)))


def chunks(folder: Path) -> Reader:
    """Receive chunks of the right and the wrong length, in any order."""
    names = count()

    def read(data: bytes) -> None:
        size = int.from_bytes(data[:8], "big")
        if 2**22 < size <= 2**32:
            size = 2**22  # a sparse file, which takes no less time for being empty
        staging = Staging(folder, f"{next(names):064x}", size)
        try:
            for number in data[8:]:
                length = min(CHUNK_BYTES, max(0, size - number % 8 * CHUNK_BYTES)) + number // 128
                with suppress(WireError):
                    staging.write(number % 8, bytes(length))
            assert len(staging.missing(4)) <= 4
            staging.finish()
        finally:
            staging.drop()

    return read


# -- certificates -----------------------------------------------------------------------------


def _certificates() -> tuple[bytes, ...]:
    both = certificate_of("authority"), certificate_of("dev-1")
    requests = (make_request(fleet.keys_of(name), name) for name in ("dev-1", "x" * 60))
    return (*(each.der for each in both), *(each.pem() for each in both), *requests)


def read_certificates(data: bytes) -> None:
    """Read a request for a certificate, or a certificate, which is judged too."""
    try:
        read_request(data)
    except EdgeFedError:
        found = read_certificate(data)
        found.is_issued_by(certificate_of("authority"))
        found.is_valid_at(fleet.BEGIN)


# -- signed messages --------------------------------------------------------------------------

SIGNED = arrivals(
    TOPICS,
    [(spec, WHO[spec.branch], {}) for spec in TOPIC_SPECS.values()],
    fleet.sealing(forged=0.3, other_signer=0.2),
)


def signed(folder: Path) -> Reader:
    """Read messages of a signed fleet; each that is read is verified again by other means."""
    del folder
    verifier = Verifier(certificate_of("authority"), certificate_of("revoked").__eq__)

    def read(data: bytes) -> None:
        arrival = fleet.split(data)
        found = read_arrival(TOPICS, arrival, lambda topic, reason: None, verifier)
        if found is not None:
            check_received(found, arrival.topic, arrival.payload)
        fleet.read_again(data, verifier)

    return read


def check_received(read: Received, topic: str, payload: bytes) -> None:
    """Check by other means that a message was signed by a party that may send it there.

    Raises:
        AssertionError: it was not.
    """
    parsed = read.topic
    if parsed.leaf == "c" or parsed.branch == "enrol":
        assert read.signer is None
        return
    _, kind, body, key, signature, _ = msgpack.unpackb(payload, use_list=False)
    user = ""
    role: tuple[str, ...] = ("coordinator",)
    if parsed.branch == "up":
        user, role = parsed.who, ("device",)
    elif (parsed.branch, parsed.leaf) == ("control", "request"):
        user, role = parsed.who.partition("/")[0], ("operator", "viewer")
    known = {certificate_of(name).key_id: name for name in PARTIES}
    assert key in known, "nobody has this key"
    assert known[key] not in ("stranger", "revoked"), "its certificate does not count"
    signer = certificate_of(known[key])
    assert read.signer == signer, "the message names another signer"
    assert signer.role in role, "the role may not send this"
    assert user in ("", signer.user), "it speaks for another"
    try:
        signer.signing_key.verify(signature, fleet.signed_bytes(topic, kind, body))
    except InvalidSignature as error:
        raise AssertionError("the signature is wrong") from error


# -- sealed data ------------------------------------------------------------------------------

MARK = b"sealed by the fuzzer"
OPENED = SealContext("r-1", "r-1-0", "dev-2", "dev-1")
CONTEXTS = (
    *(OPENED, OPENED, OPENED, SealContext("r-1", "r-1-1", "dev-2", "dev-1")),
    *(SealContext("r-1", "r-1-0", "dev-1", "dev-2"), SealContext("r-1", "r-1-0", "dev-3", "dev-1")),
)


def make_sealed(context: SealContext, draws: random.Random) -> bytes:
    """Return data sealed for a device, perhaps broken, or by a sender who cheats."""
    key = X25519PrivateKey.from_private_bytes(draws.randbytes(32))
    content = draws.randbytes(draws.choice((0, 1, 40, 3000)))
    data = MARK + hashlib.sha256(content).digest() + content
    own, how, seal = credentials_of(context.sender), draws.random(), seal_data
    if how < 0.2:
        certificate = certificate_of(draws.choice((context.sender, *PARTIES)))
        other = draws.choice([name for name in PARTIES if name != context.sender])
        own, data = replace(own, certificate=certificate, keys=fleet.keys_of(other)), content
    elif how < 0.4:
        seal = partial(_seal_broken, draws)
    made = seal(own, certificate_of(context.receiver), context, data, lambda: key)
    return broken(made, draws) if draws.random() < 0.4 else made


def _seal_broken(draws: random.Random, *arguments: Any) -> bytes:
    """Return sealed data whose certificate, signature or length was broken before encryption."""

    class Cipher:
        def __init__(self, key: bytes) -> None:
            self._cipher = ChaCha20Poly1305(key)

        def encrypt(self, nonce: bytes, plain: bytes, context: bytes) -> bytes:
            changed = broken(plain, draws)[draws.choice((0, 0, 0, 500)) :]
            return self._cipher.encrypt(nonce, changed, context)

    with patch.object(sealed_data, "ChaCha20Poly1305", Cipher):
        return seal_data(*arguments)


def read_sealed(data: bytes) -> None:
    """Open sealed data; the sender has signed what opens, as a whole."""
    opened = open_data(credentials_of("dev-1"), OPENED, data)
    mark, content = opened[: len(MARK)], opened[len(MARK) + 32 :]
    assert mark == MARK, "the sender never signed this"
    assert opened[len(MARK) : len(MARK) + 32] == hashlib.sha256(content).digest()


TARGETS = (
    Target("envelope", always(lambda data: decode(data, *EVERY)), MESSAGE, 30),
    Target("topic", always(read_topic), TOPIC, 15),
    Target(
        "tensors",
        always(lambda data: pack(unpack(data, None, max_bytes=MAX_BYTES))),
        mostly_broken(st.sampled_from(SEEDS).map(_arrays).map(pack)),
        12,
    ),
    Target(
        "codec",
        always(lambda data: decode_tensors(data, None, max_bytes=MAX_BYTES)),
        mostly_broken(CODED.map(lambda coded: _coded(*coded))),
        12,
    ),
    Target("patch", always(read_patch), siblings(CODED, make_patch), 6),
    Target("chunks", chunks, siblings(st.sampled_from(SIZES), make_chunks)),
    Target(
        "certificate",
        always(read_certificates),
        mostly_broken(st.deferred(lambda: st.sampled_from(_certificates()))),
        6,
    ),
    Target("signed", signed, SIGNED, 12),
    Target("sealed", always(read_sealed), siblings(st.sampled_from(CONTEXTS), make_sealed), 6),
)
