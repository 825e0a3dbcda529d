"""Sign messages, and verify their signers (Ed25519, RFC 8032).

The signature covers the topic, the kind and the body of a message, so that it is valid only on that
topic: a reply cannot be passed off as another device's, nor a task as one for another device.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature

from edgefed.errors import NotAllowedError, WireError
from edgefed.trust.certificates import Certificate, Role, read_certificate
from edgefed.trust.credentials import Credentials

SIGNATURE_BYTES = 64
CONTEXT = b"edgefed message 3\0"
"""Keeps a signature of a message from being taken for one of anything else."""

UNINTRODUCED = "wire.unintroduced"
"""Code of the error for a signer whose certificate is not known yet."""

MAX_KNOWN = 65_536
"""Certificates that are remembered; the one unused for longest is forgotten for a new one."""


@dataclass(frozen=True)
class Seal:
    """The proof that a message carries.

    Attributes:
        key: id of the signer's certificate.
        signature: 64 bytes.
        certificate: the certificate (DER); empty where receivers have it already.
    """

    key: bytes
    signature: bytes
    certificate: bytes = b""


class Signer:
    """Signs for one party.

    Args:
        credentials: the party's.
    """

    def __init__(self, credentials: Credentials) -> None:
        self.certificate = credentials.certificate
        self._key = credentials.keys.signing

    def seal(self, topic: str, kind: str, body: bytes, *, introduce: bool) -> Seal:
        """Return the proof for a message.

        Args:
            topic: of the message.
            kind: the message's kind.
            body: the message's packed fields.
            introduce: whether it carries the certificate, for receivers that may not have it.
        """
        signature = self._key.sign(signed_bytes(topic, kind, body))
        own = self.certificate
        return Seal(own.key_id, signature, own.der if introduce else b"")

    def sign(self, data: bytes) -> bytes:
        """Return the signature of data that is not a message; the caller provides the context."""
        return self._key.sign(data)


@dataclass
class Verifier:
    """Verifies the messages that one program receives; owned by one thread.

    Args:
        authority: of the fleet.
        is_revoked: whether a certificate is no longer accepted, although the authority signed it.

    Attributes:
        refused: how many messages had no signature, a wrong one, or that of a signer that may not
            send them.
        unintroduced: how many had a signer whose certificate had not arrived yet, such as between a
            restart and the retained messages; they are sent again.
    """

    authority: Certificate
    is_revoked: Callable[[Certificate], bool] = lambda certificate: False
    refused: int = 0
    unintroduced: int = 0
    _known: OrderedDict[bytes, Certificate] = field(default_factory=OrderedDict)

    def verify(
        self,
        topic: str,
        kind: str,
        body: bytes,
        seal: Seal | None,
        roles: tuple[Role, ...],
        user: str = "",
    ) -> Certificate:
        """Verify the signature of a message, and return the signer's certificate.

        Args:
            topic: of the message.
            kind: its kind.
            body: its packed fields.
            seal: its proof, if it carries one.
            roles: those that may send such a message on the topic.
            user: the only user that may; empty for all with the roles.

        Raises:
            WireError: ``wire.unsigned``, ``wire.signature``, ``wire.signer``; ``UNINTRODUCED``.
        """
        try:
            if seal is None:
                raise WireError(f"A {kind} message is not signed.", code="wire.unsigned")
            signer = self._signer(seal)
            _check_sender(signer, kind, roles, user)
            _check_signature(signer, topic, kind, body, seal)
            if self.is_revoked(signer):  # last: it may note what it has seen
                raise _not_from(signer, kind, "whose certificate is revoked")
        except WireError as error:
            if error.code == UNINTRODUCED:
                self.unintroduced += 1
            else:
                self.refused += 1
            raise
        return signer

    def _signer(self, seal: Seal) -> Certificate:
        """Return the certificate that a proof names, from the message or from memory."""
        known = self._known.get(seal.key)
        if known is None:
            known = self._introduced(seal)
            self._known[known.key_id] = known
            while len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(seal.key)
        return known

    def _introduced(self, seal: Seal) -> Certificate:
        if not seal.certificate:
            raise WireError("A message was signed with an unknown key.", code=UNINTRODUCED)
        try:
            certificate = read_certificate(seal.certificate)
        except NotAllowedError as error:
            raise WireError(error.message, code="wire.signer") from error
        if not certificate.is_issued_by(self.authority):
            raise WireError(
                "A message was signed with a certificate of another fleet.", code="wire.signer"
            )
        if certificate.key_id != seal.key:
            raise WireError(
                "A message names another key than that of its certificate.", code="wire.signer"
            )
        return certificate


def _check_sender(signer: Certificate, kind: str, roles: tuple[Role, ...], user: str) -> None:
    """Refuse a signer that may not send such a message on the topic."""
    if signer.role not in roles:
        raise _not_from(signer, kind, f"which has the role {signer.role}")
    if user and signer.user != user:
        raise _not_from(signer, kind, f"on a topic of {user}")


def _check_signature(signer: Certificate, topic: str, kind: str, body: bytes, seal: Seal) -> None:
    if not is_signed(signer, signed_bytes(topic, kind, body), seal.signature):
        raise WireError(
            f"The signature of a {kind} message is wrong.",
            code="wire.signature",
            hint="it was changed on its way, or sent by another party",
        )


def _not_from(signer: Certificate, kind: str, why: str) -> WireError:
    return WireError(f"A {kind} message was signed by {signer.user}, {why}.", code="wire.signer")


def signed_bytes(topic: str, kind: str, body: bytes) -> bytes:
    """Return the bytes that a message's signature covers; each part with its length before it."""
    parts = (topic.encode(), kind.encode(), body)
    return CONTEXT + b"".join(struct.pack("<I", len(part)) + part for part in parts)


def is_signed(signer: Certificate, data: bytes, signature: bytes) -> bool:
    """Whether the holder of a certificate signed these bytes."""
    try:
        signer.signing_key.verify(signature, data)
    except InvalidSignature:
        return False
    return True
