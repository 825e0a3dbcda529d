"""The parties on the coordinator's machine: broker, coordinator and operators.

Their keys stay the same when a certificate is renewed, and are replaced on an operator's order.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

from edgefed.coordinator.members.enrolled_parties import EnrolledParties
from edgefed.errors import EdgeFedError
from edgefed.files.writing import write_atomic
from edgefed.process.clock import Clock
from edgefed.trust.authority import renewal_due
from edgefed.trust.certificates import REMOTE, Certificate, read_certificate
from edgefed.trust.credentials import CERTIFICATE, FLEET, Credentials, recover, save_credentials
from edgefed.trust.issuing import CertificateRequest, new_keys

log = logging.getLogger(__name__)

LOOK_EVERY = 3600.0
"""Seconds between two looks at the certificates of this machine; a sixth of their life for short
ones."""


class OwnParties:
    """The credentials of the parties on this machine, except devices', which renew theirs.

    Args:
        trust: the folder of the fleet's certificates on this machine.
        parties: all enrolled parties.
        clock: decides which renewals are due.
        life: of a new certificate.
    """

    def __init__(
        self, trust: Path, parties: EnrolledParties, clock: Clock, life: timedelta
    ) -> None:
        self._trust = trust
        self._parties = parties
        self._clock = clock
        self._life = life
        self._next_look = clock.monotonic()
        for old in trust.glob(".*.old"):  # credentials that a killed process was replacing
            recover(trust / old.name[1:-4])

    def renew(self) -> list[str]:
        """Issue the next certificates of those that need them, for the same keys.

        Called often; it looks at the files from time to time.

        Returns:
            The users with new certificates.
        """
        now = self._clock.monotonic()
        if now < self._next_look:
            return []
        self._next_look = now + min(LOOK_EVERY, self._life.total_seconds() / 6)
        return [user for folder in self._folders() if (user := self._renew(folder))]

    def users(self) -> list[str]:
        """Return the users whose credentials are here, sorted."""
        certificates = (self._certificate(folder) for folder in self._folders())
        return sorted(certificate.user for certificate in certificates if certificate is not None)

    def rotate(self, user: str) -> Certificate:
        """Replace the keys of a party, and revoke the certificates of its old ones.

        Killed at any moment, either the old credentials are there and count, or the new ones.

        Raises:
            NotAllowedError: it is not enrolled.
            StorageError: the new keys cannot be saved; then the old ones still count.
        """
        keys = new_keys()
        request = CertificateRequest(user, keys.signing.public_key(), keys.encryption.public_key())
        made = self._parties.rotate(user, request)
        authority = self._parties.authority
        folder = self._trust / user
        save_credentials(
            Credentials(
                folder, keys, made, authority.certificate, authority.fleet, authority.broker
            )
        )
        self._parties.note_use(made)
        log.info("replaced the keys of %s", user)
        return made

    def _folders(self) -> list[Path]:
        folders = (path.parent for path in self._trust.glob(f"*/{FLEET}"))
        return sorted(folder for folder in folders if not folder.name.startswith("."))

    def _certificate(self, folder: Path) -> Certificate | None:
        """Return the certificate in a folder that this authority issued to a party of ours."""
        try:
            own = read_certificate((folder / CERTIFICATE).read_bytes())
        except (EdgeFedError, OSError) as error:
            log.warning("the certificate in %s cannot be read: %s", folder, error)
            return None
        ours = own.role not in (*REMOTE, "authority") and self._parties.issued(own)
        return own if ours else None

    def _is_of_the_future(self, own: Certificate) -> bool:
        """Whether a certificate was issued while the clock was ahead, which has been set back.

        The one before it is valid then. A clock that is slow finds none that is.
        """
        known = self._parties.valid_certificates(own.user)
        return self._clock.now() < own.not_before and bool(known)

    def _renew(self, folder: Path) -> str:
        """Renew the certificate in a folder when it is due; return its user, empty when not."""
        own = self._certificate(folder)
        if own is None:
            return ""
        try:
            self._parties.note_use(own)  # a rotation that was killed may not have
            if not (renewal_due(own, self._clock.now()) or self._is_of_the_future(own)):
                return ""
            write_atomic(folder / CERTIFICATE, self._parties.reissue(own).pem())
        except (EdgeFedError, OSError) as error:
            log.warning("the certificate in %s was not renewed: %s", folder, error)
            return ""
        log.info("renewed the certificate of %s", own.user)
        return own.user
