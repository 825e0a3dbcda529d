"""Make the keys and certificates of a fleet: the authority's, signing requests, and parties'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edgefed.errors import NotAllowedError
from edgefed.trust.certificates import (
    ENCRYPTION_KEY,
    UNREADABLE,
    Certificate,
    Role,
    read_certificate,
    user_of,
)

MAX_REQUEST_BYTES = 2048
CLOCK_SKEW = timedelta(hours=1)
"""A certificate is valid from this long before it is issued: clocks are never quite equal."""


@dataclass(frozen=True)
class KeyPair:
    """The private keys of one party."""

    signing: Ed25519PrivateKey
    encryption: X25519PrivateKey

    def fit(self, certificate: Certificate) -> bool:
        """Whether a certificate is for these keys; a broker's and an authority's is for one."""
        return certificate.signing_key == self.signing.public_key() and (
            certificate.encryption_key in (None, self.encryption.public_key())
        )


@dataclass(frozen=True)
class CertificateRequest:
    """A request for a certificate: two public keys, and proof that the party has the first.

    Attributes:
        name: the party's own suggestion; the authority decides.
    """

    name: str
    signing_key: Ed25519PublicKey
    encryption_key: X25519PublicKey


def new_keys() -> KeyPair:
    """Return new keys of a party."""
    return KeyPair(Ed25519PrivateKey.generate(), X25519PrivateKey.generate())


def make_authority(
    key: Ed25519PrivateKey, fleet: str, now: datetime, life: timedelta
) -> Certificate:
    """Return the certificate of a fleet's authority, signed by itself."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "authority"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "authority"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, fleet),
        ]
    )
    public = key.public_key()
    builder = (
        _builder(subject, subject, public, now, life)
        # No authority below this one
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_AUTHORITY_USAGE, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    return _read(builder.sign(key, None))


def make_request(keys: KeyPair, name: str) -> bytes:
    """Return a certificate signing request (DER) for these keys, signed by the first of them."""
    raw = keys.encryption.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    builder = x509.CertificateSigningRequestBuilder(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    ).add_extension(x509.UnrecognizedExtension(ENCRYPTION_KEY, raw), critical=False)
    return builder.sign(keys.signing, None).public_bytes(Encoding.DER)


def read_request(encoded: bytes) -> CertificateRequest:
    """Parse a signing request.

    Raises:
        NotAllowedError: ``trust.request``: it is not one, or its signature is wrong.
    """
    try:
        if len(encoded) > MAX_REQUEST_BYTES:
            raise ValueError("it is too long")
        asked = x509.load_der_x509_csr(encoded)
        key = asked.public_key()
        if not asked.is_signature_valid or not isinstance(key, Ed25519PublicKey):
            raise ValueError("its signature or its kind of key is wrong")
        extension = asked.extensions.get_extension_for_oid(ENCRYPTION_KEY).value
        assert isinstance(extension, x509.UnrecognizedExtension)
        names = asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        name = str(names[0].value) if names else ""
        return CertificateRequest(name, key, X25519PublicKey.from_public_bytes(extension.value))
    except (*UNREADABLE, InvalidSignature, x509.ExtensionNotFound) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200].rstrip(".")
        raise NotAllowedError(
            f"A request for a certificate cannot be used: {reason}.", code="trust.request"
        ) from error


def issue(
    authority: Certificate,
    key: Ed25519PrivateKey,
    *,
    role: Role,
    name: str = "",
    signing_key: Ed25519PublicKey,
    encryption_key: X25519PublicKey | None = None,
    now: datetime,
    life: timedelta,
    hosts: Sequence[str] = (),
) -> Certificate:
    """Return a certificate for a party's public keys.

    Args:
        authority: the signer's certificate.
        key: its private key.
        role: of the holder.
        name: used for devices, operators and viewers.
        signing_key: the holder's Ed25519 key.
        encryption_key: the holder's X25519 key, if it has one.
        now: begin of its validity, less some time for clocks that differ.
        life: length of its validity.
        hosts: names and addresses of a broker, for its clients.

    Raises:
        NotAllowedError: ``trust.name``.
    """
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, user_of(role, name)),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
        ]
    )
    server = role == "broker"
    usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    builder = (
        _builder(subject, authority.x509.subject, signing_key, now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
        )
    if encryption_key is not None:
        raw = encryption_key.public_bytes(Encoding.Raw, PublicFormat.Raw)
        builder = builder.add_extension(
            x509.UnrecognizedExtension(ENCRYPTION_KEY, raw), critical=False
        )
    return _read(builder.sign(key, None))


def make_revocations(
    authority: Certificate,
    key: Ed25519PrivateKey,
    serials: Sequence[int],
    now: datetime,
    life: timedelta,
) -> bytes:
    """Return the list of revoked certificates as a PEM file, for the broker."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.x509.subject)
        .last_update(now - CLOCK_SKEW)
        .next_update(now + life)
    )
    for serial in serials:
        entry = x509.RevokedCertificateBuilder(serial, now)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(key, None).public_bytes(Encoding.PEM)


_AUTHORITY_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: Ed25519PublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _read(made: x509.Certificate) -> Certificate:
    return read_certificate(made.public_bytes(Encoding.DER))
