"""Proof that a device's next key is its own: each key signs the one that follows it.

The authority of a fleet can issue a certificate for any name and any key. A device that knows
another one's key takes a different one for that name only if the known key, or one that follows it,
has signed it. A device signs its next key when its certificate is renewed or its keys are replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from edgefed.errors import NotAllowedError
from edgefed.files.writing import write_atomic
from edgefed.trust.certificates import MAX_CERTIFICATE_BYTES

SUCCESSION = ".succession"
"""Ending of the file beside a device's folder of credentials, which keeps its keys."""

MOST_KEYS = 64
"""Keys that are kept, the newest ones; of a device that was away for longer, the key is unknown."""

_CONTEXT = b"edgefed next key 1\0"
_KEY, _SIGNATURE = 32, 64


@dataclass(frozen=True)
class Succession:
    """The keys of a party, oldest first.

    Attributes:
        keys: raw Ed25519 keys.
        signatures: of each key but the first, by the key before it.
    """

    keys: tuple[bytes, ...]
    signatures: tuple[bytes, ...] = ()

    def followed_by(self, own: Ed25519PrivateKey, key: bytes) -> Succession:
        """Return the succession with a key after that of ``own``, in the place of others there."""
        last = own.public_key().public_bytes_raw()
        place = self.keys.index(last) if last in self.keys else -1
        keys, signatures = self.keys[: place + 1], self.signatures[: max(place, 0)]
        if place < 0:
            keys, signatures = (last,), ()
        made = Succession((*keys, key), (*signatures, own.sign(_CONTEXT + last + key)))
        return Succession(made.keys[-MOST_KEYS:], made.signatures[1 - MOST_KEYS :])

    def leads(self, known: bytes, key: bytes) -> bool:
        """Whether ``key`` is the known one, or follows it by signatures."""
        if known == key:
            return True
        if known not in self.keys or key not in self.keys:
            return False
        start, end = self.keys.index(known), self.keys.index(key)
        links = range(start, end)
        return start < end and all(
            _is_signed(self.keys[n], self.keys[n + 1], self.signatures[n]) for n in links
        )

    def to_bytes(self) -> bytes:
        """Return the succession as bytes."""
        return b"".join(
            (self.keys[0], *(s + k for s, k in zip(self.signatures, self.keys[1:], strict=True)))
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Succession:
        """Parse the bytes of ``to_bytes``.

        Raises:
            NotAllowedError: ``trust.certificate``: they are not a succession.
        """
        size = _KEY + _SIGNATURE
        if len(data) % size != _KEY or len(data) > MOST_KEYS * size:
            raise NotAllowedError("A device's keys cannot be read.", code="trust.certificate")
        rows = [data[n : n + size] for n in range(_KEY, len(data), size)]
        keys = (data[:_KEY], *(row[_SIGNATURE:] for row in rows))
        return cls(keys, tuple(row[:_SIGNATURE] for row in rows))


def succession_of(folder: Path, key: bytes) -> Succession:
    """Return the keys of the holder of credentials, from the file beside their folder.

    Without a file, or where it is about other keys, there is that key alone.
    """
    try:
        succession = Succession.from_bytes(_file(folder).read_bytes())
    except (OSError, NotAllowedError):
        return Succession((key,))
    return succession if key in succession.keys else Succession((key,))


def save_succession(folder: Path, succession: Succession) -> None:
    """Write the keys of the holder of credentials beside their folder.

    Raises:
        StorageError: the disk does not take it.
    """
    write_atomic(_file(folder), succession.to_bytes())


def sign_next_key(folder: Path, own: Ed25519PrivateKey, key: bytes) -> None:
    """Store the signature of the holder's own key over its next key.

    Raises:
        StorageError: the disk does not take it.
    """
    last = own.public_key().public_bytes_raw()
    if last != key:
        save_succession(folder, succession_of(folder, last).followed_by(own, key))


def delete_succession(folder: Path) -> None:
    """Delete the file beside credentials that are deleted.

    Raises:
        OSError: it cannot be deleted.
    """
    _file(folder).unlink(missing_ok=True)


def joined(certificate: bytes, succession: Succession) -> bytes:
    """Return a certificate with the keys that led to its own."""
    return len(certificate).to_bytes(2, "big") + certificate + succession.to_bytes()


def parted(data: bytes) -> tuple[bytes, Succession]:
    """Split the bytes of ``joined`` into certificate and succession.

    Raises:
        NotAllowedError: ``trust.certificate``: they have another form.
    """
    size = int.from_bytes(data[:2], "big")
    if size > MAX_CERTIFICATE_BYTES:
        raise NotAllowedError("A device's certificate is too long.", code="trust.certificate")
    return data[2 : 2 + size], Succession.from_bytes(data[2 + size :])


def _is_signed(last: bytes, key: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(last).verify(signature, _CONTEXT + last + key)
    except (InvalidSignature, ValueError):
        return False
    return True


def _file(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{SUCCESSION}")
