"""Enrolment tokens, with which a device finds its fleet's authority and proves its invitation.

A token is bytes in base32, in lower case: version, the authority's public key (32 bytes), a secret
(16 bytes), the port, and host, fleet and name with their lengths, then four bytes of a SHA-256 over
all of it, which detect typing errors. The secret never travels: its holder proves it with an HMAC,
and the authority stores only the key of that HMAC.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

from edgefed.errors import UsageError
from edgefed.trust.certificates import NAME

VERSION = 1
KEY_BYTES = 32
SECRET_BYTES = 16
CHECK_BYTES = 4
ID_CHARACTERS = 20
MAX_HOST_BYTES = 253
MAX_TOKEN_CHARACTERS = 1024
_HEAD = 1 + KEY_BYTES + SECRET_BYTES + 2


@dataclass(frozen=True)
class Token:
    """The contents of a token.

    Attributes:
        authority_key: the raw Ed25519 key of the fleet's authority.
        secret: known to the holder of the token only.
        host, port: of the broker's listener for enrolment.
        fleet: to join.
        name: of the party; empty where a device names itself.
    """

    authority_key: bytes
    secret: bytes = field(repr=False)
    host: str
    port: int
    fleet: str
    name: str = ""

    @property
    def id(self) -> str:
        """The identifier of the invitation in a topic; it does not disclose the secret."""
        return hashlib.sha256(b"edgefed enrolment id" + self.secret).hexdigest()[:ID_CHARACTERS]

    @property
    def proof_key(self) -> bytes:
        """The key with which both sides prove that they know the token."""
        return hashlib.sha256(b"edgefed enrolment proof" + self.secret).digest()

    def text(self) -> str:
        """Return the token as text, as users copy it."""
        words = (self.host.encode(), self.fleet.encode(), self.name.encode())
        head = bytes([VERSION]) + self.authority_key + self.secret + self.port.to_bytes(2, "big")
        data = head + b"".join(bytes([len(word)]) + word for word in words)
        return base64.b32encode(data + _check(data)).decode().rstrip("=").lower()


def new_token(
    authority_key: bytes,
    host: str,
    port: int,
    fleet: str,
    name: str,
    random_bytes: Callable[[int], bytes],
) -> Token:
    """Return a token with a new secret.

    Raises:
        UsageError: ``enrol.host``: the host is too long for a token.
    """
    if not 0 < len(host.encode()) <= MAX_HOST_BYTES:
        raise UsageError(f"'{host[:80]}' is not the name of a host.", code="enrol.host")
    return Token(authority_key, random_bytes(SECRET_BYTES), host, port, fleet, name)


def parse_token(text: str) -> Token:
    """Return the token that was copied or typed; case, white space and hyphens do not count.

    Raises:
        UsageError: ``enrol.token``: it is not a token, or a character of it is wrong or missing.
    """
    plain = "".join(text.split()).replace("-", "").upper()
    try:
        if not plain or len(plain) > MAX_TOKEN_CHARACTERS:
            raise ValueError
        data = base64.b32decode(plain + "=" * (-len(plain) % 8))
        if base64.b32encode(data).decode().rstrip("=") != plain:  # bits that decoding ignores
            raise ValueError
        if not hmac.compare_digest(_check(data[:-CHECK_BYTES]), data[-CHECK_BYTES:]):
            raise ValueError
        return _read(data[:-CHECK_BYTES])
    except (ValueError, binascii.Error) as error:
        raise UsageError(
            "The token is not valid: a character of it is missing or wrong.",
            code="enrol.token",
            hint="copy the whole line that the invite command has printed",
        ) from error


def proof(key: bytes, purpose: bytes, *parts: bytes) -> bytes:
    """Return the HMAC-SHA256 over a purpose and parts; it depends on their boundaries."""
    mac = hmac.new(key, purpose + b"\0", hashlib.sha256)
    for part in parts:
        mac.update(len(part).to_bytes(4, "big") + part)
    return mac.digest()


def is_proof(candidate: bytes, key: bytes, purpose: bytes, *parts: bytes) -> bool:
    """Whether ``candidate`` is the proof of these parts, compared in constant time."""
    return hmac.compare_digest(candidate, proof(key, purpose, *parts))


def fingerprint(key: bytes) -> str:
    """Return a public key's short form, which people compare on device and authority."""
    digest = hashlib.sha256(key).hexdigest()[:32]
    return ":".join(digest[i : i + 4] for i in range(0, len(digest), 4))


def _check(data: bytes) -> bytes:
    return hashlib.sha256(b"edgefed token" + data).digest()[:CHECK_BYTES]


def _read(data: bytes) -> Token:
    """Return the token in bytes whose check was right.

    Raises:
        ValueError: it is of another version, or a part is wrong.
    """
    if len(data) < _HEAD or data[0] != VERSION:
        raise ValueError("version")
    key, rest = data[1 : 1 + KEY_BYTES], data[1 + KEY_BYTES :]
    secret, rest = rest[:SECRET_BYTES], rest[SECRET_BYTES:]
    port, rest = int.from_bytes(rest[:2], "big"), rest[2:]
    host, rest = _word(rest)
    fleet, rest = _word(rest)
    name, rest = _word(rest)
    if rest or not port or not host.isprintable() or not host:
        raise ValueError("length")
    if not NAME.fullmatch(fleet) or (name and not NAME.fullmatch(name)):
        raise ValueError("name")
    return Token(key, secret, host, port, fleet, name)


def _word(data: bytes) -> tuple[str, bytes]:
    """Return the first word and the rest."""
    if not data or len(data) <= data[0]:
        raise ValueError("length")
    return data[1 : 1 + data[0]].decode(), data[1 + data[0] :]
