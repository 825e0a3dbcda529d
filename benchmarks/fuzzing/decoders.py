"""Targets that decode bytes from the network: messages, topics, tensors, patches, certificates."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import lru_cache
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.fuzzing.mutations import TEXTS, broken
from benchmarks.fuzzing.random_messages import payload
from benchmarks.fuzzing.targets import Reader, Target
from edgefed.trust.certificates import Certificate, read_certificate
from edgefed.trust.issuing import read_request
from edgefed.wire.chunk_staging import Staging
from edgefed.wire.codecs import CODECS
from edgefed.wire.codecs import decode as decode_tensors
from edgefed.wire.diagnostic_messages import DIAGNOSTIC_MESSAGES
from edgefed.wire.envelope import decode
from edgefed.wire.limits import CHUNK_BYTES
from edgefed.wire.messages import MESSAGES, BlobRef
from edgefed.wire.patch_assembly import assemble, route
from edgefed.wire.patches import apply_patch, difference
from edgefed.wire.tensors import Array, digest, pack, specs_of, unpack
from edgefed.wire.topics import Topics

MAX_BYTES = 2**24
"""Most bytes that tensors may take here."""

EVERY = (*MESSAGES, *DIAGNOSTIC_MESSAGES)

TOPICS = Topics("fuzz")
WORDS = ("up", "down", "all", "control", "events", "task", "c", "birth", "reply", "coordinator")


# -- messages and topics ----------------------------------------------------------------------


def make_envelope(draws: random.Random) -> bytes:
    """Return a message of any class, valid or not."""
    return payload(draws, EVERY)


@contextmanager
def envelopes(folder: Path) -> Iterator[Reader]:
    """Decode messages of every class."""
    del folder
    yield lambda data: decode(data, *EVERY)


def make_topic(draws: random.Random) -> bytes:
    """Return a topic of words in any order."""
    blob = f"{draws.getrandbits(256):064x}"
    words = (*WORDS, "dev-1", blob, blob[:63], "0", "00", "9999999", *TEXTS)
    levels = [draws.choice(words) for _ in range(draws.choice((1, 2, 3, 4, 5, 300)))]
    start = draws.choice(("edgefed/fuzz/", "edgefed/fuzz/", "edgefed/other/", ""))
    topic = (start + "/".join(levels)).encode()
    return broken(topic, draws) if draws.random() < 0.2 else topic


@contextmanager
def topics(folder: Path) -> Iterator[Reader]:
    """Parse topics; what is parsed tells how its messages travel."""
    del folder

    def read(data: bytes) -> None:
        parsed = TOPICS.parse(data.decode("utf-8", "surrogateescape"))
        if parsed is not None:
            assert parsed.spec.message is not None

    yield read


# -- tensors ----------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _arrays(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    kinds = (np.float32, np.int8, np.int64, np.float16, np.bool_)
    return {
        f"t{number}": (4 * rng.standard_normal(shape)).astype(kinds[(seed + number) % len(kinds)])
        for number, shape in enumerate([(3, 4), (), (7,), (2, 1, 5)][: 1 + seed % 4])
    }


@lru_cache(maxsize=256)
def _coded(codec: str, seed: int) -> bytes:
    return CODECS[codec].encode(_arrays(seed), np.random.Generator(np.random.Philox(seed)))


def make_tensors(draws: random.Random) -> bytes:
    """Return packed tensors, mostly broken."""
    data = pack(_arrays(draws.randrange(64)))
    return broken(data, draws) if draws.random() < 0.95 else data


@contextmanager
def tensors(folder: Path) -> Iterator[Reader]:
    """Unpack tensors, whatever they are; what is unpacked is packed again."""
    del folder

    def read(data: bytes) -> None:
        pack(unpack(data, None, max_bytes=MAX_BYTES))

    yield read


def make_coded(draws: random.Random) -> bytes:
    """Return coded tensors, mostly broken."""
    data = _coded(draws.choice((*CODECS,)), draws.randrange(64))
    return broken(data, draws) if draws.random() < 0.95 else data


@contextmanager
def coded(folder: Path) -> Iterator[Reader]:
    """Decode tensors, whatever they are."""
    del folder
    yield lambda data: decode_tensors(data, None, max_bytes=MAX_BYTES)


@lru_cache(maxsize=256)
def _coded_change(codec: str, seed: int) -> bytes:
    change = difference(_arrays(seed), _arrays(seed))
    return CODECS[codec].encode(change, np.random.Generator(np.random.Philox(seed)))


def make_patch(draws: random.Random) -> bytes:
    """Return a seed of the weights that are held, then a coded patch, perhaps to others."""
    held = draws.randrange(64)
    meant = held if draws.random() < 0.7 else draws.randrange(64)
    data = _coded_change(draws.choice((*CODECS,)), meant)
    return bytes([held]) + (broken(data, draws) if draws.random() < 0.5 else data)


@contextmanager
def patches(folder: Path) -> Iterator[Reader]:
    """Apply patches to weights that are held, alone and as a chain that a task names."""
    del folder

    def read(data: bytes) -> None:
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
        apply_patch(base, decode_tensors(change, None, max_bytes=MAX_BYTES))
        assemble(ref, route(ref, held.__contains__), held.__getitem__, specs_of(base))

    yield read


def make_chunks(draws: random.Random) -> bytes:
    """Return a blob's size and numbers, of which each stands for a chunk that comes."""
    size = draws.choice((0, 1, 5, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 2**32, 2**62))
    return size.to_bytes(8, "big") + draws.randbytes(draws.choice((0, 1, 4, 12)))


@contextmanager
def chunks(folder: Path) -> Iterator[Reader]:
    """Receive chunks of the right and the wrong length, in any order, and resume in between."""
    names = count()

    def read(data: bytes) -> None:
        size = int.from_bytes(data[:8], "big")
        if 2**22 < size <= 2**32:
            size = 2**22  # a sparse file, which takes no less time for being empty
        staging = Staging(folder, f"{next(names):064x}", size)
        try:
            _receive(staging, size, data[8:])
        finally:
            staging.drop()

    yield read


def _receive(staging: Staging, size: int, numbers: Sequence[int]) -> None:
    from edgefed.errors import WireError

    for number in numbers:
        length = min(CHUNK_BYTES, max(0, size - number % 8 * CHUNK_BYTES)) + number // 128
        try:
            staging.write(number % 8, bytes(length))
        except WireError:
            continue
    assert len(staging.missing(4)) <= 4
    staging.finish()


# -- certificates -----------------------------------------------------------------------------


EXAMPLES = Path(__file__).parent / "certificates"
"""An authority, a device of it and a request, which are not made anew: they hold random numbers."""


@lru_cache(maxsize=1)
def _certificates() -> tuple[Certificate, Certificate]:
    authority, device = (
        (EXAMPLES / f"{name}.der").read_bytes() for name in ("authority", "device")
    )
    return read_certificate(authority), read_certificate(device)


@lru_cache(maxsize=1)
def _request() -> bytes:
    return (EXAMPLES / "request.der").read_bytes()


def make_certificate(draws: random.Random) -> bytes:
    """Return a certificate, in DER or PEM, or a request for one, mostly broken."""
    chosen = draws.choice(_certificates())
    data = draws.choice((chosen.der, chosen.pem(), _request()))
    return broken(data, draws) if draws.random() < 0.95 else data


@contextmanager
def certificates(folder: Path) -> Iterator[Reader]:
    """Read certificates and requests for them, and judge what is read."""
    del folder
    authority = _certificates()[0]

    def read(data: bytes) -> None:
        from edgefed.errors import EdgeFedError

        try:
            read_request(data)
        except EdgeFedError:
            found = read_certificate(data)
            found.is_issued_by(authority)
            found.is_valid_at(datetime(2026, 2, 1, tzinfo=timezone.utc))

    yield read


TARGETS = (
    Target("envelope", make_envelope, envelopes, 30, "wire"),
    Target("topic", make_topic, topics, 15, "wire"),
    Target("tensors", make_tensors, tensors, 12, "wire"),
    Target("codec", make_coded, coded, 12, "wire"),
    Target("patch", make_patch, patches, 6, "wire"),
    Target("chunks", make_chunks, chunks, 3, "wire"),
    Target("certificate", make_certificate, certificates, 6, "wire"),
)
