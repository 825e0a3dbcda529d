"""The enrolled parties, and the valid certificates that the authority issued."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from edgefed.coordinator.members.enrolment_store import (
    EnrolmentStore,
    Invitation,
    Issued,
    Party,
    hexadecimal,
    key_of,
)
from edgefed.errors import NotAllowedError, UnknownNameError
from edgefed.process.clock import Clock, moment_of, timestamp
from edgefed.trust.authority import Authority
from edgefed.trust.certificates import Certificate, Role, read_certificate, user_of
from edgefed.trust.issuing import CLOCK_SKEW, CertificateRequest

UNUSED_FOR = timedelta(hours=1)
"""For this long, a device that was issued its next certificate is issued no other one: each one
that is never used stays on the list of revoked certificates until it expires."""


KEPT = timedelta(days=365)
"""For this long, expired certificates are remembered: after a clock that was ahead is set back, the
revoked ones among them are on the broker's list again."""

ONE_SECOND = timedelta(seconds=1)
"""The validity of certificates is in whole seconds."""


class EnrolledParties:
    """The enrolled parties of a fleet; safe from any thread.

    Args:
        authority: signs certificates.
        store: keeps them.
        clock: for their validity.
        life: of a new certificate.
        changed: called after a change of the enrolled parties or the revoked certificates.
    """

    def __init__(
        self,
        authority: Authority,
        store: EnrolmentStore,
        clock: Clock,
        life: timedelta,
        changed: Callable[[], None],
    ) -> None:
        self.authority = authority
        self._store = store
        self._clock = clock
        self._life = life
        self._changed = changed
        self._lock = threading.RLock()
        self._changes = self._reported = 0
        self._parties = {party.user: party for party in store.parties()}
        self._issued = {issued.serial: issued for issued in store.issued()}

    # -- who ----------------------------------------------------------------------------------

    def users(self) -> list[str]:
        """Return the common names of all enrolled parties, the broker aside, sorted."""
        with self._lock:
            parties = self._parties.values()
            return sorted(p.user for p in parties if p.state == "enrolled" and p.role != "broker")

    def revoked_serials(self) -> list[int]:
        """Return the serial numbers of the revoked certificates that have not expired."""
        now = self._clock.now()
        with self._lock:
            issued = self._issued.values()
            return [
                int(row.serial, 16)
                for row in issued
                if row.revoked and moment_of(row.not_after) > now
            ]

    def all(self) -> list[Party]:
        """Return all parties that are or were enrolled, sorted by user."""
        with self._lock:
            return [party for _, party in sorted(self._parties.items())]

    def newest(self, user: str) -> Issued | None:
        """Return the certificate of a party that was issued last and is not revoked."""
        with self._lock:
            return next(reversed(self._of(user)), None)

    def certificate(self, serial: str) -> Certificate | None:
        """Return a certificate by its serial number in hexadecimal, unless it is revoked."""
        issued = self._issued.get(serial)
        return None if issued is None or issued.revoked else read_certificate(issued.der)

    def party(self, user: str) -> Party | None:
        """Return the party that has, or had, a name; None if there is none."""
        return self._parties.get(user)

    def valid_certificates(self, user: str) -> list[Certificate]:
        """Return the certificates of a party that count now, in the order of issue."""
        with self._lock:
            certificates = [read_certificate(row.der) for row in self._of(user)]
        return [
            certificate
            for certificate in certificates
            if certificate.is_valid_at(self._clock.now())
        ]

    def is_enrolled(self, user: str) -> bool:
        """Whether a party is enrolled now."""
        party = self._parties.get(user)
        return party is not None and party.state == "enrolled"

    def accepts(self, certificate: Certificate) -> bool:
        """Whether a certificate of this authority counts now."""
        return self.issued(certificate) and certificate.is_valid_at(self._clock.now())

    def issued(self, certificate: Certificate) -> bool:
        """Whether a certificate was issued here and not revoked; it may have expired."""
        known = self._issued.get(hexadecimal(certificate.serial))
        return known is not None and not known.revoked and known.der == certificate.der

    # -- certificates -------------------------------------------------------------------------

    def enrol(
        self, role: Role, name: str, request: CertificateRequest, invitation: Invitation | None
    ) -> Certificate:
        """Issue a party's first certificate.

        Args:
            role: of the party.
            name: of the party.
            request: its public keys.
            invitation: the token exchanged for it, which is used up.

        Raises:
            NotAllowedError: ``enrol.name``: a party of that name is enrolled.
            StorageError: it cannot be stored, and nothing was issued; or it was issued, but the
                broker's files cannot be written: ``tell_again`` repeats that.
        """
        with self._lock:
            user = user_of(role, name)
            self.check_free(user)
            now = self._clock.now()
            made = self.authority.issue(role, name, request, now, self._life)
            self.register(made, invitation)
        self._tell()
        return made

    def register(self, made: Certificate, invitation: Invitation | None = None) -> None:
        """Write down a party and its certificate."""
        now = timestamp(self._clock.now())
        party = Party(made.user, made.role, made.name, "enrolled", now)
        issued = self._row(made, now)
        used = () if invitation is None else (_traded(invitation, issued),)
        with self._lock:
            self._store.write([party, issued, *used], delete=self._expired())
            self._parties[party.user] = party
            self._keep([issued])

    def renew(self, user: str, request: CertificateRequest) -> Certificate:
        """Issue the next certificate of a party; the same one again for the same keys.

        The one before is revoked when the next one is used, so that either of them may be lost.

        Raises:
            NotAllowedError: ``enrol.revoked``; ``enrol.renewal``: the next one waits to be used.
        """
        key = request.signing_key.public_bytes_raw().hex()
        now = self._clock.now()
        with self._lock:
            party = self._enrolled(user)
            waiting = [row for row in self._of(user) if not row.used]
            for row in waiting:
                if row.key == key and moment_of(row.not_after) > now:
                    return read_certificate(row.der)
                if now - moment_of(row.issued) < UNUSED_FOR:
                    raise NotAllowedError(
                        f"{user} has not used the certificate that it was issued last.",
                        code="enrol.renewal",
                        hint="it may ask again with other keys after an hour",
                    )
            made = self._issue_next(party, request, now, waiting)
        if waiting:
            self._tell()
        return made

    def rotate(self, user: str, request: CertificateRequest) -> Certificate:
        """Issue a certificate for new keys of a party on this machine; ``note_use`` ends the old.

        Its validity begins later than that of every certificate before, so that parties that
        have seen it accept none of those (``trust.superseded_certificate``).

        Raises:
            NotAllowedError: ``enrol.revoked``.
            StorageError: it cannot be written down.
        """
        with self._lock:
            party = self._enrolled(user)
            known = self._of(user)
            now = self._clock.now()
            begins = [read_certificate(row.der).not_before for row in known]
            next_begins = (begin + CLOCK_SKEW + ONE_SECOND for begin in begins if begin <= now)
            now = max([now, *next_begins])
            return self._issue_next(party, request, now, [e for e in known if not e.used])

    def order_rotation(self, user: str) -> bytes:
        """Note that a device has to replace its keys; it stays noted until it has done so.

        Returns:
            The id of the certificate that is to be replaced.

        Raises:
            NotAllowedError: ``enrol.revoked``.
            StorageError: it cannot be written down.
        """
        with self._lock:
            party = self._enrolled(user)
            old = next((row for row in reversed(self._of(user)) if row.used), None)
            old = old or self._of(user)[-1]
            party = replace(party, replaces=old.serial)
            self._store.write([party])
            self._parties[user] = party
        return read_certificate(old.der).key_id

    def rotation_due(self, certificate: Certificate) -> bool:
        """Whether the keys of this certificate have to be replaced."""
        party = self._parties.get(certificate.user)
        return party is not None and party.replaces == hexadecimal(certificate.serial)

    def _issue_next(
        self, party: Party, request: CertificateRequest, now: datetime, waiting: list[Issued]
    ) -> Certificate:
        """Issue a certificate, and revoke those that wait to be used."""
        made = self.authority.issue(party.role, party.name, request, now, self._life)
        issued_at = timestamp(self._clock.now())
        rows = [*(replace(row, revoked=issued_at) for row in waiting), self._row(made, issued_at)]
        self._store.write(rows, delete=self._expired())
        self._keep(rows)
        return made

    def reissue(self, certificate: Certificate) -> Certificate:
        """Issue another certificate for the keys of one, for a party on this machine."""
        now = self._clock.now()
        with self._lock:
            self._enrolled(certificate.user)
            made = self.authority.issue_again(certificate, now, self._life)
            issued = replace(self._row(made, timestamp(now)), used=1)
            self._store.write([issued], delete=self._expired())
            self._keep([issued])
        return made

    def note_use(self, certificate: Certificate) -> bool:
        """Note that a party has shown a certificate; those of its older keys are revoked.

        Returns:
            Whether there were any.
        """
        now = timestamp(self._clock.now())
        with self._lock:
            known = self._issued.get(hexadecimal(certificate.serial))
            if known is None or known.used or known.revoked:
                return False
            changes = [replace(known, used=1)]
            older = (row for row in self._of(known.user) if row.key != known.key)
            changes += [replace(row, revoked=now) for row in older]
            self._store.write(changes)
            self._keep(changes)
        if len(changes) > 1:
            self._tell()
        return len(changes) > 1

    def revoke(self, user: str, reason: str) -> Party:
        """End a party's membership; ending it again changes nothing.

        Raises:
            UnknownNameError: ``enrol.unknown``: no party of that name was enrolled.
            StorageError: it cannot be stored; or it was, but the broker's files cannot be written:
                ``tell_again`` repeats that.
        """
        now = timestamp(self._clock.now())
        with self._lock:
            party = self._parties.get(user)
            if party is None:
                raise UnknownNameError(
                    f"No party named {user} is enrolled.",
                    code="enrol.unknown",
                    hint="edgefed device enrolled, edgefed gateway list, edgefed operator list",
                )
            changes = [replace(row, revoked=now) for row in self._of(user)]
            if party.state == "enrolled":
                party = replace(party, state="revoked", ended=now, reason=reason)
            self._store.write([party, *changes])
            self._parties[user] = party
            self._keep(changes)
        self._tell()
        return party

    def tell_again(self) -> None:
        """Call ``changed`` again for changes where it failed before.

        Raises:
            StorageError: it fails again.
        """
        if self._reported < self._changes:
            self._tell()

    def _tell(self) -> None:
        """Tell that something has changed, and note it unless that fails."""
        with self._lock:
            self._changes += 1
            change = self._changes
        self._changed()
        with self._lock:
            self._reported = max(self._reported, change)

    def check_free(self, user: str) -> None:
        """Check that no enrolled party has a name.

        Raises:
            NotAllowedError: ``enrol.name``.
        """
        now = self._clock.now()
        valid = any(moment_of(row.not_after) > now for row in self._of(user))
        if valid and self.is_enrolled(user):
            raise NotAllowedError(
                f"{user} is enrolled already.",
                code="enrol.name",
                hint="choose another name, or end that membership:"
                f" edgefed {self._parties[user].role} remove {self._parties[user].name}",
            )

    def _enrolled(self, user: str) -> Party:
        party = self._parties.get(user)
        if party is None or party.state != "enrolled":
            raise NotAllowedError(f"{user} is not enrolled any more.", code="enrol.revoked")
        return party

    def _of(self, user: str) -> list[Issued]:
        """Return the certificates of a party that are not revoked, in the order of issue."""
        rows = (row for row in self._issued.values() if row.user == user)
        return [row for row in rows if not row.revoked]

    def _row(self, made: Certificate, issued: str) -> Issued:
        return Issued(
            hexadecimal(made.serial),
            made.user,
            key_of(made),
            made.der,
            issued,
            timestamp(made.not_after),
        )

    def _keep(self, rows: Iterable[Issued]) -> None:
        self._issued |= {row.serial: row for row in rows}

    def _expired(self) -> list[Issued]:
        """Return the certificates that expired long ago, and forget them."""
        before: datetime = self._clock.now() - KEPT
        expired = [e for e in self._issued.values() if moment_of(e.not_after) < before]
        current = {serial for user in self._parties for serial in self._last(user)}
        gone = [row for row in expired if row.serial not in current]
        for row in gone:
            del self._issued[row.serial]
        return gone

    def _last(self, user: str) -> list[str]:
        """Return the serial of a party's newest certificate, which is kept even expired."""
        return [row.serial for row in self._of(user)[-1:]]


def _traded(invitation: Invitation, issued: Issued) -> Invitation:
    return replace(invitation, state="used", serial=issued.serial, key=issued.key)
