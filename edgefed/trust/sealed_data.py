"""Data from one device to another, which only the receiver can read, with an authenticated sender.

An ephemeral X25519 key is agreed with the receiver's (RFC 7748); HKDF-SHA256 (RFC 5869) derives the
key of ChaCha20-Poly1305 (RFC 8439). Inside are the sender's certificate and its Ed25519 signature
of the context, the receiver's certificate and the data, so that intermediaries can neither read it,
change it, nor replace it.

    sealed = ephemeral public key (32) || ciphertext
    plain  = length of certificate (2) || certificate || signature (64) || data
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from edgefed.errors import NotAllowedError, WireError
from edgefed.trust.certificates import Certificate, read_certificate
from edgefed.trust.credentials import Credentials
from edgefed.trust.signatures import SIGNATURE_BYTES, is_signed

KEY_BYTES = 32
TAG_BYTES = 16
LABEL = b"edgefed data for one device 3\0"
OVERHEAD = KEY_BYTES + TAG_BYTES + SIGNATURE_BYTES + 2 + 2048
"""Most bytes by which sealed data is longer than the data."""


@dataclass(frozen=True)
class SealContext:
    """The context of sealed data; the receiver must know it to open it.

    Attributes:
        run, exchange: of the reply that carries it.
        sender, receiver: names of devices.
    """

    run: str
    exchange: str
    sender: str
    receiver: str

    def packed(self) -> bytes:
        """Return it as bytes, each part with its length before it."""
        parts = (self.run, self.exchange, self.sender, self.receiver)
        return LABEL + b"".join(
            struct.pack("<I", len(part.encode())) + part.encode() for part in parts
        )


def seal_data(
    own: Credentials,
    receiver: Certificate,
    context: SealContext,
    data: bytes,
    new_key: Callable[[], X25519PrivateKey] = X25519PrivateKey.generate,
) -> bytes:
    """Return data that only the receiver can open.

    Args:
        own: the sender's credentials.
        receiver: the receiver's certificate.
        context: of the data.
        data: the data to seal.
        new_key: makes the ephemeral key.

    Raises:
        NotAllowedError: ``trust.receiver``: the certificate is not that of the receiver.
    """
    if (
        receiver.encryption_key is None
        or not receiver.is_issued_by(own.authority)
        or (receiver.role, receiver.name) != ("device", context.receiver)
    ):
        raise NotAllowedError(
            f"The certificate given for {context.receiver} is not that device's of this fleet.",
            code="trust.receiver",
            hint="the data was not sent; the coordinator names the certificates of receivers",
        )
    ephemeral = new_key()
    public = ephemeral.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    # The receiver is signed too, so that it cannot pass the data on as meant for another
    signature = own.keys.signing.sign(_signed(context, receiver.fingerprint, data))
    certificate = own.certificate.der
    plain = struct.pack("<H", len(certificate)) + certificate + signature + data
    secret = ephemeral.exchange(receiver.encryption_key)
    key = _key(secret, public, receiver.encryption_key)
    # Each key is used once, so the nonce may be constant.
    return public + ChaCha20Poly1305(key).encrypt(bytes(12), plain, context.packed())


def open_data(own: Credentials, context: SealContext, sealed: bytes) -> bytes:
    """Return the data that another device sealed for this one.

    Raises:
        WireError: ``wire.sealed``: it is damaged, for another device, or not from the sender.
    """
    try:
        if len(sealed) < KEY_BYTES + TAG_BYTES:
            raise ValueError("it is too short")
        public = sealed[:KEY_BYTES]
        secret = own.keys.encryption.exchange(X25519PublicKey.from_public_bytes(public))
        key = _key(secret, public, own.keys.encryption.public_key())
        plain = ChaCha20Poly1305(key).decrypt(bytes(12), sealed[KEY_BYTES:], context.packed())
        return _from_sender(own, context, plain)
    except (InvalidTag, ValueError, struct.error, NotAllowedError) as error:
        raise WireError(
            f"Data from {context.sender} cannot be opened: it was changed on its way, or is not "
            "from that device, or not for this one.",
            code="wire.sealed",
        ) from error


def _from_sender(own: Credentials, context: SealContext, plain: bytes) -> bytes:
    """Return the data in decrypted bytes, if its sender signed it."""
    (length,) = struct.unpack_from("<H", plain)
    certificate, rest = plain[2 : 2 + length], plain[2 + length :]
    signature, data = rest[:SIGNATURE_BYTES], rest[SIGNATURE_BYTES:]
    sender = read_certificate(certificate)
    known = sender.is_issued_by(own.authority)
    if not known or (sender.role, sender.name) != ("device", context.sender):
        raise ValueError("the sender is another")
    if not is_signed(sender, _signed(context, own.certificate.fingerprint, data), signature):
        raise ValueError("the signature is wrong")
    return data


def _signed(context: SealContext, receiver: bytes, data: bytes) -> bytes:
    return context.packed() + receiver + data


def _key(secret: bytes, ephemeral: bytes, receiver: X25519PublicKey) -> bytes:
    # Both public keys go into the derivation, which binds the key to this pair
    info = LABEL + ephemeral + receiver.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return HKDF(SHA256(), length=32, salt=None, info=info).derive(secret)
