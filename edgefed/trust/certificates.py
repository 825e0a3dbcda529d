"""X.509 certificates of a fleet: name, role and two public keys of a party.

A certificate (RFC 5280) binds the name and role of a party to its Ed25519 key (RFC 8410), which
serves TLS and the signatures of messages, and to its X25519 key (RFC 7748), with which others
encrypt data for this party only. The fleet's authority signs it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Literal, cast, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from edgefed.errors import NotAllowedError

Role = Literal["device", "gateway", "coordinator", "operator", "viewer", "broker", "authority"]
ROLES: tuple[Role, ...] = get_args(Role)

ENCRYPTION_KEY = x509.ObjectIdentifier("2.25.139612431872310842761240537110935172853")
"""The extension that holds the raw X25519 key; an arc that anybody may take (ITU-T X.667)."""

MAX_CERTIFICATE_BYTES = 2048
"""Longest encoding that is read; ours have about 400 bytes. As in ``wire.limits``."""

KEY_ID_BYTES = 8
"""A certificate's id in a message is this much of its fingerprint."""

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""The library's exceptions for certificates and requests that it cannot read."""

REMOTE: tuple[Role, ...] = ("device", "gateway")
"""Roles on machines of their own: their holders renew their certificates over the broker."""

_PREFIXED: tuple[Role, ...] = ("operator", "viewer")
_FIXED: tuple[Role, ...] = ("coordinator", "broker", "authority")


@dataclass(frozen=True)
class Certificate:
    """One certificate, with its parts read.

    Attributes:
        der: its encoding.
        user: its common name, which the broker takes as the user: the name of a device or gateway;
            ``operator.NAME`` and ``viewer.NAME``; the role of the others.
        role: of its holder, which determines the holder's rights.
        signing_key: checks signatures of its holder.
        encryption_key: encrypts for its holder; None for the broker and the authority.
        serial: its number at the authority.
        not_before, not_after: bounds of its validity, UTC.
    """

    der: bytes
    user: str
    role: Role
    signing_key: Ed25519PublicKey
    encryption_key: X25519PublicKey | None
    serial: int
    not_before: datetime
    not_after: datetime

    @property
    def name(self) -> str:
        """The holder's name: its user without the role before it."""
        return self.user.removeprefix(f"{self.role}.")

    @cached_property
    def fingerprint(self) -> bytes:
        """SHA-256 of the encoding."""
        return self.x509.fingerprint(SHA256())

    @property
    def key_id(self) -> bytes:
        """The identifier of the certificate in a signed message."""
        return self.fingerprint[:KEY_ID_BYTES]

    @cached_property
    def x509(self) -> x509.Certificate:
        """The certificate as an object of the library."""
        return x509.load_der_x509_certificate(self.der)

    def is_issued_by(self, authority: Certificate) -> bool:
        """Whether the authority signed it."""
        try:
            self.x509.verify_directly_issued_by(authority.x509)
        except (*UNREADABLE, InvalidSignature):
            return False
        return authority.role == "authority"

    def is_valid_at(self, time: datetime) -> bool:
        """Whether a moment lies within its validity."""
        return self.not_before <= time <= self.not_after

    @property
    def public_bytes(self) -> bytes:
        """The raw Ed25519 key."""
        return self.signing_key.public_bytes(Encoding.Raw, PublicFormat.Raw)

    def pem(self) -> bytes:
        """Return the certificate as a PEM file."""
        return self.x509.public_bytes(Encoding.PEM)


def user_of(role: Role, name: str = "") -> str:
    """Return the common name of a party.

    Raises:
        NotAllowedError: ``trust.name``: it cannot have that name.
    """
    if role in _FIXED:
        return role
    if not NAME.fullmatch(name) or (role in REMOTE and name in ROLES):
        raise NotAllowedError(
            f"'{name}' cannot be the name of {_article(role)}.",
            code="trust.name",
            hint="use up to 64 lower-case letters, digits and hyphens, and not the name of a role",
        )
    return f"{role}.{name}" if role in _PREFIXED else name


def read_certificate(encoded: bytes) -> Certificate:
    """Return the certificate in DER or PEM bytes.

    Raises:
        NotAllowedError: ``trust.certificate``: it is not a certificate of a fleet.
    """
    try:
        if len(encoded) > 2 * MAX_CERTIFICATE_BYTES:
            raise ValueError("it is too long")
        if encoded.startswith(b"-----"):
            loaded = x509.load_pem_x509_certificate(encoded)
        else:
            loaded = x509.load_der_x509_certificate(encoded)
        return _read(loaded)
    except UNREADABLE as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200].rstrip(".")
        raise NotAllowedError(
            f"A certificate cannot be used: {reason}.",
            code="trust.certificate",
            hint="certificates are made by: edgefed init, and edgefed-agent enroll",
        ) from error


def _read(loaded: x509.Certificate) -> Certificate:
    """Return the parts of a certificate.

    Raises:
        ValueError: a part is missing or wrong.
    """
    if loaded.serial_number <= 0:  # RFC 5280, section 4.1.2.2
        raise ValueError("its serial number is not positive")
    key = loaded.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("its key is not an Ed25519 key")
    user = _attribute(loaded, NameOID.COMMON_NAME)
    role = _attribute(loaded, NameOID.ORGANIZATIONAL_UNIT_NAME)
    if role not in ROLES:
        raise ValueError(f"it has the unknown role {role[:40]!r}")
    known = role
    try:
        # Made again from role and name, so that no other party bears the name of a role
        expected = user_of(known, user.removeprefix(f"{known}."))
    except NotAllowedError as error:
        raise ValueError(error.message) from error
    if user != expected:
        raise ValueError(f"its name {user[:80]!r} does not fit the role {role}")
    return Certificate(
        der=loaded.public_bytes(Encoding.DER),
        user=user,
        role=known,
        signing_key=key,
        encryption_key=_encryption_key(loaded),
        serial=loaded.serial_number,
        not_before=_utc(loaded.not_valid_before_utc),
        not_after=_utc(loaded.not_valid_after_utc),
    )


def _attribute(loaded: x509.Certificate, oid: x509.ObjectIdentifier) -> str:
    attributes = loaded.subject.get_attributes_for_oid(oid)
    if len(attributes) != 1 or not isinstance(attributes[0].value, str):
        raise ValueError("its subject is not that of a fleet's certificate")
    return attributes[0].value


def _encryption_key(loaded: x509.Certificate) -> X25519PublicKey | None:
    try:
        extension = loaded.extensions.get_extension_for_oid(ENCRYPTION_KEY)
    except x509.ExtensionNotFound:
        return None
    value = cast("x509.UnrecognizedExtension", extension.value).value
    return X25519PublicKey.from_public_bytes(value)


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(timezone.utc)


def _article(role: str) -> str:
    return f"an {role}" if role[0] in "aeiou" else f"a {role}"
