"""Keys that two devices agree on, and messages that only one other device can read.

X25519 gives both devices of a pair the same secret, and HKDF-SHA256 a key of it for each purpose.
Messages are encrypted with ChaCha20-Poly1305.
"""

from __future__ import annotations

import hashlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from edgefed.errors import WireError

KEY_BYTES = 32
NONCE_BYTES = 12
SEALED_EXTRA = NONCE_BYTES + 16
"""Bytes that a sealed message has more than its text: the nonce and the tag."""


def public_key(private: bytes) -> bytes:
    """Return the public half of a private key of 32 bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed_key(private: bytes, peer: bytes, purpose: bytes) -> bytes:
    """Return the key of 32 bytes that both of a pair derive for a purpose.

    Raises:
        WireError: ``secure.key``: the peer's public key is none.
    """
    try:
        own = X25519PrivateKey.from_private_bytes(private)
        shared = own.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError as error:
        raise WireError("A device's public key is not a key.", code="secure.key") from error
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose).derive(shared)


def seal(key: bytes, nonce: bytes, text: bytes, context: bytes) -> bytes:
    """Return a message that holders of the key can read; ``context`` must be the same there."""
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text, context)


def open_sealed(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the text of a sealed message.

    Raises:
        WireError: ``secure.sealed``: it was changed, or sealed for another receiver or purpose.
    """
    nonce, encrypted = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, encrypted, context)
    except (InvalidTag, ValueError) as error:
        raise WireError("A device's message cannot be read.", code="secure.sealed") from error


def commitment(secret: bytes) -> bytes:
    """Return the digest by which a random secret of 32 bytes or more is recognised later."""
    return hashlib.sha256(b"edgefed commitment\x1f" + secret).digest()
