"""Renew a device's certificate in good time, with new keys, without an operator.

The new keys are on disk, in ``STATE/trust/FLEET/.renewals/DEVICE``, before they are first
mentioned, and asked for again until the certificate arrives. Killed at any moment, the agent goes
on with them.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from edgefed.errors import EdgeFedError
from edgefed.files.writing import sync_folder, write_atomic
from edgefed.process.clock import Clock
from edgefed.trust.authority import renewal_due
from edgefed.trust.certificates import Certificate, read_certificate
from edgefed.trust.credentials import (
    ENCRYPTION,
    KEY,
    Credentials,
    load_private_key,
    private_pem,
    save_credentials,
)
from edgefed.trust.issuing import CLOCK_SKEW, KeyPair, make_request, new_keys
from edgefed.trust.succession import sign_next_key
from edgefed.wire.enrolment_messages import IssuedCertificate, RenewalOrder, RenewalRequest

log = logging.getLogger(__name__)

RENEWALS = ".renewals"
ASK_EVERY = 60.0
"""Seconds between two requests; a twelfth of a certificate's life for short ones."""


class Renewal:
    """A device's credentials, and their next ones; owned by the agent's thread.

    Args:
        credentials: the device's.
        clock: for when they are due.
    """

    def __init__(self, credentials: Credentials, clock: Clock) -> None:
        self._credentials = credentials
        self._clock = clock
        self._folder = credentials.folder.parent / RENEWALS / credentials.folder.name
        self._next = clock.monotonic()
        self._ordered = b""

    def current(self) -> Credentials:
        """Return the credentials that count now."""
        return self._credentials

    def order(self, order: RenewalOrder) -> None:
        """Have the keys replaced at the next look, whether or not the certificate expires soon.

        An order that names another certificate than the present one is out of date.
        """
        own = self._credentials.certificate.key_id
        if order.key == own and order.key != self._ordered:
            self._ordered = own
            self._next = self._clock.monotonic()

    def due(self, now: float, ask: Callable[[RenewalRequest], None]) -> None:
        """Ask for the next certificate, if it is time."""
        if now < self._next:
            return
        own = self._credentials.certificate
        # A certificate is dated back by CLOCK_SKEW
        life = (own.not_after - own.not_before - CLOCK_SKEW).total_seconds()
        self._next = now + min(ASK_EVERY, life / 12)
        if own.key_id == self._ordered or renewal_due(own, self._clock.now()):
            ask(RenewalRequest(request=make_request(self._keys(), own.name)))

    def take(self, issued: IssuedCertificate) -> Credentials | None:
        """Save the next certificate, and return the new credentials.

        Returns:
            None for a certificate that was not requested, or that is already here.
        """
        try:
            certificate = read_certificate(issued.certificate)
            keys = self._waiting()
            if keys is None or not self._fits(certificate, keys):
                return None
            made = Credentials(
                self._credentials.folder,
                keys,
                certificate,
                self._credentials.authority,
                self._credentials.fleet,
                self._credentials.broker,
            )
            own = self._credentials
            # Before the new key is used, since others accept it by this signature
            sign_next_key(own.folder, own.keys.signing, certificate.public_bytes)
            self._credentials = save_credentials(made)
        except EdgeFedError as error:
            log.warning("the next certificate was not saved: %s", error.as_line())
            return None
        # Last: keys that a kill leaves here are recognised as those in use
        shutil.rmtree(self._folder, ignore_errors=True)
        log.info("renewed the certificate, until %s", certificate.not_after.date())
        return made

    def _fits(self, certificate: Certificate, keys: KeyPair) -> bool:
        own = self._credentials
        return (
            keys.fit(certificate)
            and certificate.user == own.certificate.user
            and certificate.role == own.certificate.role
            and certificate.is_issued_by(own.authority)
            and certificate.is_valid_at(self._clock.now())
        )

    def _keys(self) -> KeyPair:
        """Return the next keys; new ones the first time."""
        waiting = self._waiting()
        if waiting is not None:
            return waiting
        made = new_keys()
        write_atomic(self._folder / KEY, private_pem(made.signing))
        write_atomic(self._folder / ENCRYPTION, private_pem(made.encryption))
        sync_folder(self._folder)
        return made

    def _waiting(self) -> KeyPair | None:
        """Return the next keys, if there are any.

        An agent that was killed may have saved, or deleted, only one of the two, or not have
        deleted those that are in use already.
        """
        folder: Path = self._folder
        if not ((folder / KEY).exists() and (folder / ENCRYPTION).exists()):
            return None
        pair = KeyPair(
            load_private_key(folder, KEY, Ed25519PrivateKey),
            load_private_key(folder, ENCRYPTION, X25519PrivateKey),
        )
        in_use = self._credentials.certificate.signing_key == pair.signing.public_key()
        return None if in_use else pair
