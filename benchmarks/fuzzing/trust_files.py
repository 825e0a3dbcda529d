"""Targets that read what people carry: tokens, and the files of credentials."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from benchmarks.fuzzing.files import JSON_PARTS
from benchmarks.fuzzing.fuzz_clock import FuzzClock
from benchmarks.fuzzing.fuzz_fleet import (
    AUTHORITY,
    certificate_of,
    fleet_json,
    keys_of,
    saved_authority,
    saved_credentials,
)
from benchmarks.fuzzing.mutations import TEXTS, broken
from benchmarks.fuzzing.targets import Reader, Target
from edgefed.trust.authority import load_authority
from edgefed.trust.credentials import load_credentials, private_pem
from edgefed.trust.tokens import Token, _check, parse_token

# -- tokens -----------------------------------------------------------------------------------

HOSTS = (
    *("192.0.2.7", "2001:db8::1", "hub", "a" * 253, "example.org", "h") * 3,
    *("ä", "x\x1b[2J", "", "\u202ehub", "a b"),
)
NAMES = (*("cam-1", "plant", "x" * 64, "a") * 4, *("", "Ä", "-", "a/b", "authority", "x" * 70))


def make_token(draws: random.Random) -> bytes:
    """Return a token as somebody may type it, or one with wrong parts and the right check."""
    word = draws.choice
    token = Token(
        draws.randbytes(32),
        draws.randbytes(16),
        word(HOSTS),
        word((0, 1, 8884, 65535)),
        word(NAMES),
        word(NAMES),
    )
    text = token.text()
    if draws.random() < 0.4:
        data = base64.b32decode(text.upper() + "=" * (-len(text) % 8))[:-4]
        data = broken(data, draws)
        text = base64.b32encode(data + _check(data)).decode().rstrip("=").lower()
    elif draws.random() < 0.5:
        return broken(text.encode(), draws)
    how = draws.randrange(4)
    if how == 0:
        text = "-".join(text[i : i + 5] for i in range(0, len(text), 5)).upper()
    elif how == 1:
        at = draws.randrange(len(text))
        text = text[:at] + draws.choice((*TEXTS, " ", "\n", "=", "ı", "١", "\ud800")) + text[at:]
    return text.encode("utf-8", "surrogatepass")


@contextmanager
def read_tokens(folder: Path) -> Iterator[Reader]:
    """Read tokens; what is read is written the same again, and fits into an error's line."""
    del folder

    def read(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        token = parse_token(text)
        assert token.text() == "".join(text.split()).replace("-", "").lower()
        assert token.host.isprintable()
        assert token.port

    yield read


# -- credentials ------------------------------------------------------------------------------

NUMBERED = ("key.pem", "encryption.pem", "certificate.pem", "authority.pem", "fleet.json")


@lru_cache
def _whole(name: str) -> tuple[bytes, ...]:
    """Return candidate contents for a file: the right one first, then similar wrong ones."""
    own, other = keys_of("dev-1"), keys_of("dev-2")
    certificates = tuple(map(certificate_of, ("dev-1", AUTHORITY, "renewed", "stranger", "broker")))
    pems = tuple(each.pem() for each in certificates)
    found: dict[str, tuple[bytes, ...]] = {
        "key.pem": tuple(private_pem(key) for key in (own.signing, own.encryption, other.signing)),
        "encryption.pem": tuple(private_pem(key) for key in (own.encryption, own.signing)),
        "certificate.pem": pems,
        "authority.pem": (pems[1], pems[0], certificates[1].der),
        "fleet.json": (fleet_json(),),
    }
    return found[name]


def make_credentials(draws: random.Random) -> bytes:
    """Return the number of a file, of a device or the authority, and what it holds instead."""
    number = draws.randrange(len(NUMBERED))
    how, whole = draws.random(), _whole(NUMBERED[number])
    if how < 0.2:
        data = draws.choice(whole)
    elif how < 0.4 and NUMBERED[number] == "fleet.json":
        data = "".join(draws.choice(JSON_PARTS) for _ in range(40)).encode()
    else:
        data = broken(whole[0], draws)
    return bytes([number + draws.choice((0, 128))]) + data


@contextmanager
def read_credentials(folder: Path) -> Iterator[Reader]:
    """Load credentials, or an authority, of which a file is wrong; TLS reads what is loaded."""
    clock = FuzzClock()
    device = saved_credentials("dev-1", folder).folder
    authority = folder / AUTHORITY
    saved_authority(authority)

    def read(data: bytes) -> None:
        number = data[0] if data else 0
        place = authority if number >= 128 else device
        path = place / NUMBERED[number % 128 % len(NUMBERED)]
        whole = path.read_bytes() if path.exists() else None
        try:
            path.write_bytes(data[1:])
            path.chmod(0o600)
            if place is authority:
                load_authority(authority)
            else:
                load_credentials(device, clock.now()).tls_context()
        finally:
            if whole is None:
                path.unlink()
            else:
                path.write_bytes(whole)

    yield read


TARGETS = (
    Target("token", make_token, read_tokens, 3, "file"),
    Target("credentials", make_credentials, read_credentials, 3, "file"),
)
