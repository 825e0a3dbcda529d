"""Invitations, and the exchange of their tokens for certificates."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from edgefed.config.values.address import parse_address
from edgefed.coordinator.members.enrolled_parties import EnrolledParties
from edgefed.coordinator.members.enrolment_store import (
    NO_LIMITS,
    EnrolmentStore,
    Invitation,
    SiteLimits,
)
from edgefed.errors import EdgeFedError, NotAllowedError, UnknownNameError
from edgefed.process.clock import Clock, timestamp
from edgefed.trust.certificates import REMOTE, Certificate, Role, user_of
from edgefed.trust.issuing import CertificateRequest, read_request
from edgefed.trust.tokens import Token, fingerprint, is_proof, new_token
from edgefed.wire.enrolment_messages import EnrolmentRequest, EnrolmentResponse, sealed

KEPT_FOR = timedelta(days=7)
"""How long an ended invitation is remembered, so that its holder learns why it is refused."""

MAX_INVITATIONS = 4096
"""Most invitations that are remembered."""


class Enrolment:
    """The authority's side of tokens; safe from any thread.

    Args:
        parties: the enrolled parties.
        store: keeps invitations.
        clock: for their expiry.
        random_bytes: makes secrets.
    """

    def __init__(
        self,
        parties: EnrolledParties,
        store: EnrolmentStore,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.parties = parties
        self._store = store
        self._clock = clock
        self._random_bytes = random_bytes
        self._lock = threading.RLock()
        self._invitations = {invitation.id: invitation for invitation in store.invitations()}

    # -- what operators order -----------------------------------------------------------------

    def invite(
        self, role: Role, name: str, seconds: float, limits: SiteLimits = NO_LIMITS
    ) -> tuple[Token, str]:
        """Return a new token and when it expires.

        A token for a name replaces an unused one for the same name.

        Args:
            role: of its holder.
            name: of a party; empty for a device that names itself and waits for approval.
            seconds: until it expires.
            limits: of a gateway's site.

        Raises:
            NotAllowedError: ``trust.name``, ``enrol.name``, ``enrol.invitations``.
            StorageError: it cannot be written down.
        """
        authority, now = self.parties.authority, self._clock.now()
        if name:
            self.parties.check_free(user_of(role, name))
        address = parse_address(authority.broker).for_enrolment()
        token = new_token(
            authority.certificate.public_bytes,
            address.host,
            address.port,
            authority.fleet,
            name,
            self._random_bytes,
        )
        expires = timestamp(now + timedelta(seconds=seconds))
        made = Invitation(
            token.id, role, name, int(bool(name)), token.proof_key, timestamp(now), expires
        )
        with self._lock:
            gone = self._over(made)
            if len(self._invitations) - len(gone) >= MAX_INVITATIONS:
                raise NotAllowedError(
                    f"There are {MAX_INVITATIONS} invitations already.",
                    code="enrol.invitations",
                    hint="wait until some are used or expire",
                )
            site = [replace(limits, user=name)] if role == "gateway" else []
            self._store.write([made, *site], delete=gone)
            for invitation in gone:
                del self._invitations[invitation.id]
            self._invitations[made.id] = made
        return token, expires

    def approve(self, name: str) -> Certificate:
        """Enrol a device that waits for approval, and return its certificate.

        Raises:
            UnknownNameError: ``enrol.pending``: none of that name waits.
            NotAllowedError: ``enrol.name``.
        """
        with self._lock:
            waiting = self._pending(name)
            return self._trade(waiting, read_request(waiting.request))

    def reject(self, name: str) -> None:
        """Refuse a device that waits for approval.

        Raises:
            UnknownNameError: ``enrol.pending``: none of that name waits.
        """
        with self._lock:
            self._save(replace(self._pending(name), state="rejected"))

    def listing(self) -> list[dict[str, Any]]:
        """Return all present and past parties, and open invitations, for people and JSON."""
        now = timestamp(self._clock.now())
        with self._lock:
            invitations = list(self._invitations.values())
        rows = [
            {
                "name": invitation.name,
                "role": invitation.role,
                "state": "pending" if invitation.state == "pending" else "invited",
                "fingerprint": _brief(invitation.key),
                "expires": "" if invitation.state == "pending" else invitation.expires,
                "since": invitation.created,
            }
            for invitation in invitations
            if invitation.state == "pending"
            or (invitation.state == "open" and invitation.expires > now)
        ]
        for party in self.parties.all():
            newest = self.parties.newest(party.user)
            rows.append(
                {
                    "name": party.name,
                    "role": party.role,
                    "state": party.state,
                    "fingerprint": _brief(newest.key) if newest else "",
                    "expires": newest.not_after if newest else "",
                    "since": party.ended or party.enrolled,
                }
            )
        return rows

    # -- what holders of tokens ask -----------------------------------------------------------

    def answer(self, token: str, asked: EnrolmentRequest) -> EnrolmentResponse:
        """Return the answer to the holder of a token.

        The same request has the same answer, however often it is sent.
        """
        with self._lock:
            known = self._invitations.get(token)
            key = b"" if known is None else known.proof_key
            try:
                if known is None or not is_proof(asked.proof, key, *asked.proven()):
                    raise NotAllowedError(
                        "The fleet does not know this token.",
                        code="enrol.unknown_token",
                        hint="ask for a new one: edgefed device, operator or gateway invite; to "
                        "invite a name again replaces its token",
                    )
                response = self._answer(known, asked)
            except EdgeFedError as error:
                response = EnrolmentResponse(
                    status="refused", code=error.code, reason=error.message, hint=error.hint
                )
        return sealed(response, key) if known is not None else response

    def _answer(self, known: Invitation, asked: EnrolmentRequest) -> EnrolmentResponse:
        request = read_request(asked.request)
        self._check(known, request)
        _check_role(known, asked.roles)
        if known.state == "used":
            return self._enrolled(known)
        if known.state == "open":
            if known.named:
                return self._with(self._trade(_named(known, asked.name), request))
            user = user_of(known.role, asked.name)
            self._check_name(known, user)
            key = request.signing_key.public_bytes_raw().hex()
            waiting = replace(
                known, state="pending", name=asked.name, key=key, request=asked.request
            )
            self._save(waiting)
        return EnrolmentResponse(status="pending", name=known.name or asked.name)

    def _check(self, known: Invitation, request: CertificateRequest) -> None:
        """Check that a token may be used, and by these keys."""
        key = request.signing_key.public_bytes_raw().hex()
        if known.state == "rejected":
            raise NotAllowedError(
                "An operator has rejected this device.",
                code="enrol.rejected",
                hint=f"ask for a new token: edgefed {_group(known.role)} invite",
            )
        if known.key and known.key != key:
            raise NotAllowedError(
                "The token was used already, with another key.",
                code="enrol.used",
                hint=f"ask for a new one: edgefed {_group(known.role)} invite; if nobody here used "
                f"it, somebody else has it: edgefed {_group(known.role)} remove NAME",
            )
        if known.state == "open" and timestamp(self._clock.now()) > known.expires:
            raise NotAllowedError(
                f"The token expired at {known.expires}.",
                code="enrol.expired",
                hint=f"ask for a new one: edgefed {_group(known.role)} invite",
            )

    def _check_name(self, known: Invitation, user: str) -> None:
        self.parties.check_free(user)
        for invitation in self._invitations.values():
            if (
                invitation.state == "pending"
                and invitation.name == user
                and invitation.id != known.id
            ):
                raise NotAllowedError(
                    f"Another device waits for approval as {user}.",
                    code="enrol.name",
                    hint="choose another name: edgefed-agent enroll TOKEN --name NAME",
                )

    def _trade(self, invitation: Invitation, request: CertificateRequest) -> Certificate:
        """Issue the certificate that an invitation promises; it is used up with that."""
        try:
            return self.parties.enrol(invitation.role, invitation.name, request, invitation)
        finally:
            # Read back: membership and used token are one transaction. It may have succeeded even
            # if the write of the broker's files failed.
            self._invitations |= {stored.id: stored for stored in self._store.invitations()}

    def _enrolled(self, known: Invitation) -> EnrolmentResponse:
        """Return the certificate that a used token was traded for."""
        certificate = self.parties.certificate(known.serial)
        if certificate is None:
            raise NotAllowedError(
                f"{known.name} was removed from the fleet.",
                code="enrol.revoked",
                hint=f"ask for a new token: edgefed {_group(known.role)} invite",
            )
        self.parties.tell_again()
        return self._with(certificate)

    def _with(self, certificate: Certificate) -> EnrolmentResponse:
        authority = self.parties.authority
        return EnrolmentResponse(
            status="enrolled",
            name=certificate.name,
            role=certificate.role,
            broker=authority.broker,
            certificate=certificate.der,
            authority=authority.certificate.der,
        )

    # -- rows ---------------------------------------------------------------------------------

    def _pending(self, name: str) -> Invitation:
        for invitation in self._invitations.values():
            if invitation.state == "pending" and invitation.name == name:
                return invitation
        raise UnknownNameError(
            f"No device waits for approval as {name}.",
            code="enrol.pending",
            hint="edgefed device enrolled",
        )

    def _save(self, changed: Invitation) -> None:
        self._store.write([changed])
        self._invitations[changed.id] = changed

    def _over(self, made: Invitation) -> list[Invitation]:
        """Return the invitations to forget: ended long ago, or replaced by a new one."""
        limit = timestamp(self._clock.now() - KEPT_FOR)
        user = user_of(made.role, made.name) if made.name else ""
        return [
            invitation
            for invitation in self._invitations.values()
            if (invitation.state != "pending" and invitation.expires < limit)
            or (
                invitation.state == "open"
                and invitation.named
                and user_of(invitation.role, invitation.name) == user
            )
        ]


def _check_role(known: Invitation, roles: tuple[Role, ...]) -> None:
    """Check that a token was entered into the program that it is for, before it is used up."""
    if known.role in roles:
        return
    command = "edgefed-agent" if known.role == "device" else f"edgefed {_group(known.role)}"
    raise NotAllowedError(
        f"The token is for the {known.role} {known.name}".rstrip() + ".",
        code="enrol.role",
        hint=f"use it with: {command} enroll TOKEN",
    )


def _named(known: Invitation, asked: str) -> Invitation:
    """Return an invitation; check that its holder asked for no other name."""
    if asked and asked != known.name:
        raise NotAllowedError(
            f"The token is for {known.name}, not for {asked}.",
            code="enrol.name",
            hint="leave --name out, or ask for another token",
        )
    return known


def _brief(key: str) -> str:
    return fingerprint(bytes.fromhex(key)) if key else ""


def _group(role: Role) -> str:
    """Return the group of commands that admits a role."""
    return role if role in REMOTE else "operator"
