"""Exchange a token for credentials: on a device, or on the machine of another operator.

The private keys are made here and stay here. They are stored before the first request to the
authority, in ``STATE/trust/FLEET/.enrolments/TOKEN``. After a kill at any moment, the same command
therefore resumes: the authority gives the same certificate to the same key again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from edgefed.errors import EdgeFedError, NotAllowedError, UnreachableError
from edgefed.files.writing import make_folder, sync_folder, write_atomic
from edgefed.process.clock import Clock
from edgefed.process.lock import FolderLock
from edgefed.transport.enrolment_link import EnrolmentLink
from edgefed.trust.certificates import Role, read_certificate, user_of
from edgefed.trust.credentials import (
    ENCRYPTION,
    KEY,
    Credentials,
    check_validity,
    load_credentials,
    load_private_key,
    private_pem,
    save_credentials,
)
from edgefed.trust.issuing import KeyPair, make_request, new_keys
from edgefed.trust.succession import sign_next_key
from edgefed.trust.tokens import Token, fingerprint, is_proof
from edgefed.wire.enrolment_messages import EnrolmentResponse, signed_request

ENROLMENTS = ".enrolments"
DONE = "enrolled"
"""File in a token's folder with the user that it made; the keys are with the credentials then."""

ASK_EVERY = 2.0
"""Seconds between two requests."""

FIRST_ANSWER = 20.0
"""Seconds within which the coordinator answers, if there is one."""

FINAL = ("enrol.used", "enrol.expired", "enrol.rejected", "enrol.revoked", "enrol.unknown_token")
"""Refusals after which the keys that were made for a token are of no use."""


@dataclass(frozen=True)
class Applicant:
    """The party that asks for credentials.

    Attributes:
        token: its token.
        name: of a device; may be empty where the token names it.
        roles: those that this program accepts from a token.
        state: the state folder.
    """

    token: Token
    name: str
    roles: tuple[Role, ...]
    state: Path

    @property
    def invited_by(self) -> str:
        """The group of commands that makes its tokens."""
        return next((role for role in self.roles if role in ("device", "gateway")), "operator")

    @property
    def trust(self) -> Path:
        """The fleet's folder of credentials."""
        return self.state / "trust" / self.token.fleet

    @property
    def folder(self) -> Path:
        """The folder of the keys until there is a certificate."""
        return self.trust / ENROLMENTS / self.token.id


def _sign_next_key(made: Credentials) -> None:
    """Have the key that a device enrolled with before, if it is still here, sign the new one."""
    with suppress(NotAllowedError):
        before = load_private_key(made.folder, KEY, Ed25519PrivateKey)
        sign_next_key(made.folder, before, made.certificate.public_bytes)


def enroll(applicant: Applicant, clock: Clock, tell: Callable[[str], None]) -> Credentials:
    """Exchange a token for credentials, which are saved; return those of an earlier call again.

    Args:
        applicant: the party.
        clock: for the validity of certificates and for waiting.
        tell: called with the message that an operator has to approve.

    Raises:
        UnreachableError: ``enrol.unreachable``, ``enrol.silent``.
        NotAllowedError: the token, the authority or the clock do not allow it.
        StorageError: the disk does not take it; the same command resumes later.
    """
    _check_named(applicant)
    make_folder(applicant.trust)
    lock = FolderLock(applicant.folder, "edgefed-agent enroll")
    try:
        done = applicant.folder / DONE
        if done.exists():
            return _earlier(applicant, done.read_text(), clock.now())
        keys = _keys(applicant.folder)
        try:
            made = _ask(applicant, keys, clock, tell)
        except EdgeFedError as error:
            if error.code in FINAL:
                shutil.rmtree(applicant.folder, ignore_errors=True)
            raise
        _sign_next_key(made)
        save_credentials(made)
        _forget_keys(applicant.folder, made.certificate.user)
        return made
    finally:
        lock.release()


def _earlier(applicant: Applicant, user: str, now: datetime) -> Credentials:
    """Return the credentials that this token was traded for on this machine."""
    folder = applicant.trust / user
    if not folder.exists():
        raise NotAllowedError(
            f"The token was used already on this machine, and {user} has left since.",
            code="enrol.used",
            hint=f"ask for a new one: edgefed {applicant.invited_by} invite",
        )
    return load_credentials(folder, now)


def _keys(folder: Path) -> KeyPair:
    """Return the keys that are kept for a token; new ones for the first call."""
    if not (folder / ENCRYPTION).exists():
        made = new_keys()
        write_atomic(folder / KEY, private_pem(made.signing))
        write_atomic(folder / ENCRYPTION, private_pem(made.encryption))
        sync_folder(folder)
    return KeyPair(
        load_private_key(folder, KEY, Ed25519PrivateKey),
        load_private_key(folder, ENCRYPTION, X25519PrivateKey),
    )


def _forget_keys(folder: Path, user: str) -> None:
    write_atomic(folder / DONE, user.encode())
    (folder / KEY).unlink(missing_ok=True)
    (folder / ENCRYPTION).unlink(missing_ok=True)


def _ask(
    applicant: Applicant, keys: KeyPair, clock: Clock, tell: Callable[[str], None]
) -> Credentials:
    """Ask until there is a certificate, or a refusal."""
    token = applicant.token
    request = signed_request(
        applicant.name,
        make_request(keys, token.name or applicant.name),
        token.proof_key,
        applicant.roles,
    )
    own = fingerprint(keys.signing.public_key().public_bytes_raw())
    until = clock.monotonic() + FIRST_ANSWER
    waiting = False
    link = EnrolmentLink(token, clock.now())
    try:
        while True:
            link.send(request)
            answer = link.response(ASK_EVERY)
            if answer is None and not waiting and clock.monotonic() > until:
                raise _silent(token)
            if answer is None or not _is_genuine(answer, token):
                continue
            if answer.status == "enrolled":
                return _credentials(applicant, keys, answer, clock.now())
            if answer.status == "refused":
                raise NotAllowedError(answer.reason, code=answer.code, hint=answer.hint)
            if not waiting:
                tell(_pending(answer.name, own))
            waiting = True
            while link.response(ASK_EVERY) is not None:  # what was asked for twice
                pass
    finally:
        link.close()


def _is_genuine(answer: EnrolmentResponse, token: Token) -> bool:
    """Whether an answer is from the maker of the token, or states that the token is unknown."""
    if not answer.proof:
        return answer.status == "refused" and answer.code == "enrol.unknown_token"
    return is_proof(answer.proof, token.proof_key, *answer.proven())


def _credentials(
    applicant: Applicant, keys: KeyPair, answer: EnrolmentResponse, now: datetime
) -> Credentials:
    """Return the credentials in an answer, checked."""
    token = applicant.token
    authority = read_certificate(answer.authority)
    certificate = read_certificate(answer.certificate)
    fits = (
        authority.public_bytes == token.authority_key
        and certificate.is_issued_by(authority)
        and keys.fit(certificate)
        and certificate.name == (token.name or certificate.name)
        and certificate.role in applicant.roles
    )
    if not fits:
        raise NotAllowedError(
            "The coordinator's answer is not a certificate for this machine's key.",
            code="enrol.answer",
            hint=f"ask for a new token: edgefed {applicant.invited_by} invite",
        )
    check_validity(certificate, now)
    folder = applicant.trust / user_of(certificate.role, certificate.name)
    return Credentials(folder, keys, certificate, authority, token.fleet, answer.broker)


def _check_named(applicant: Applicant) -> None:
    """Check that somebody has named the party: the token does, or a device itself."""
    if not (applicant.token.name or applicant.name):
        raise NotAllowedError(
            "The token is for a device that names itself.",
            code="enrol.role",
            hint="on the device: edgefed-agent enroll TOKEN",
        )


def _pending(name: str, own: str) -> str:
    return (
        f"waiting for approval as {name}, with the key {own}\n"
        f"  on an operator's machine: edgefed device approve {name}\n"
        "  Ctrl-C stops waiting; the same command goes on"
    )


def _silent(token: Token) -> UnreachableError:
    return UnreachableError(
        f"The coordinator of fleet {token.fleet} does not answer.",
        code="enrol.silent",
        hint="start it: edgefed coordinator; then enter the same command again",
    )
