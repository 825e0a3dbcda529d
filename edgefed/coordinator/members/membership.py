"""The members of the fleet, as the coordinator serves and enforces them."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from edgefed.config.values.address import Address
from edgefed.coordinator.members.enrolled_parties import EnrolledParties
from edgefed.coordinator.members.enrolment import Enrolment
from edgefed.coordinator.members.enrolment_store import NO_LIMITS, EnrolmentStore, SiteLimits
from edgefed.coordinator.members.own_parties import OwnParties
from edgefed.process.clock import Clock
from edgefed.trust.authority import AUTHORITY_FOLDER, load_authority
from edgefed.trust.certificates import Certificate, Role
from edgefed.trust.issuing import read_request
from edgefed.trust.signatures import Verifier
from edgefed.trust.tokens import Token
from edgefed.wire.enrolment_messages import (
    EnrolmentRequest,
    EnrolmentResponse,
    IssuedCertificate,
    RenewalRequest,
)

REQUESTS_PER_SECOND = 20.0
BURST = 100.0
"""Requests of strangers that are answered: each costs a signature's time or a write to the disk."""

REPEAT_EVERY = 5.0
"""Seconds between two attempts to write the broker's files on a full disk."""

WriteAccess = Callable[[Iterable[str], bytes], object]
"""Writes the broker's lists: the users that may connect, and revoked certificates (PEM)."""


@dataclass(frozen=True)
class MembershipSettings:
    """The place of the authority, and its settings.

    Attributes:
        trust: folder of the fleet's certificates on this machine.
        life: of new certificates.
        write_access: writes the broker's list of users that may connect.
    """

    trust: Path
    life: timedelta
    write_access: WriteAccess


def renew_own_certificates(settings: MembershipSettings, clock: Clock) -> None:
    """Renew the certificates of this machine that are due, also those that have expired already.

    For the time before the coordinator connects with its own.

    Raises:
        NotAllowedError: the authority cannot be used.
        StorageError: its list of devices cannot be used.
    """
    membership = Membership(settings, clock)
    try:
        membership.own.renew()
    finally:
        membership.close()


def open_membership(settings: MembershipSettings | None, clock: Clock) -> Membership | None:
    """Open the list of members, and rewrite the broker's files, which a crash may have left old.

    Returns:
        None where there is no authority on this machine.

    Raises:
        NotAllowedError: the authority cannot be used.
        StorageError: its list of devices, or the broker's files, cannot be used.
    """
    if settings is None:
        return None
    membership = Membership(settings, clock)
    membership.publish_access()
    return membership


def member_verifier(address: Address, membership: Membership | None) -> Verifier | None:
    """Return the coordinator's verifier of messages; with a membership, it accepts members only."""
    own = address.credentials
    if own is None:
        return None
    if membership is None:
        return Verifier(own.authority)
    accepts = membership.parties.accepts
    return Verifier(own.authority, lambda certificate: not accepts(certificate))


class Membership:
    """The members of a fleet.

    Args:
        settings: of the authority.
        clock: for timestamps and validity.

    Attributes:
        parties: the enrolled parties.
        own: the parties on this machine.
        trust: folder of the fleet's certificates on this machine.

    Raises:
        NotAllowedError: the authority cannot be used.
        StorageError: its list of devices cannot be used.
    """

    def __init__(self, settings: MembershipSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.trust = settings.trust
        folder = settings.trust / AUTHORITY_FOLDER
        authority = load_authority(folder)
        self._store = EnrolmentStore(folder)
        self._publishing = threading.Lock()
        self.parties = EnrolledParties(
            authority, self._store, clock, settings.life, self.publish_access
        )
        self._enrolment = Enrolment(self.parties, self._store, clock, secrets.token_bytes)
        self.own = OwnParties(settings.trust, self.parties, clock, settings.life)
        self._next_repeat = clock.monotonic()
        self._allowance, self._counted = BURST, clock.monotonic()

    def close(self) -> None:
        """Close the list."""
        self._store.close()

    def publish_access(self) -> None:
        """Write the broker's lists of users that may connect and of revoked certificates.

        Raises:
            StorageError: the files cannot be written; ``repeat_access`` or a restart repeats it.
        """
        with self._publishing:  # else the older of two lists might be written last
            revoked = self.parties.authority.revocations(
                self.parties.revoked_serials(), self._clock.now()
            )
            self._settings.write_access(self.parties.users(), revoked)

    def repeat_access(self) -> None:
        """Write the broker's files again after a write failed; called often.

        Raises:
            StorageError: the files still cannot be written.
        """
        now = self._clock.monotonic()
        if now >= self._next_repeat:
            self._next_repeat = now + REPEAT_EVERY
            self.parties.tell_again()

    # -- operators ----------------------------------------------------------------------------

    def invite(
        self, role: Role, name: str, seconds: float, limits: SiteLimits = NO_LIMITS
    ) -> tuple[Token, str]:
        """Return a new token and when it expires; see ``Enrolment.invite``."""
        return self._enrolment.invite(role, name, seconds, limits)

    def site_limits(self, gateway: str) -> tuple[int, int]:
        """Return the most devices and samples of a gateway's site; 0 without an invitation."""
        limits = self._store.site_limits(gateway) or SiteLimits(gateway)
        return limits.devices, limits.samples

    def approve(self, name: str) -> Certificate:
        """Enrol a device that waits for approval; see ``Enrolment.approve``."""
        return self._enrolment.approve(name)

    def reject(self, name: str) -> None:
        """Refuse a device that waits for approval; see ``Enrolment.reject``."""
        self._enrolment.reject(name)

    def listing(self) -> list[dict[str, object]]:
        """Return all present, past and invited members."""
        return self._enrolment.listing()

    # -- devices and strangers ----------------------------------------------------------------

    def answer(self, token: str, asked: EnrolmentRequest) -> EnrolmentResponse | None:
        """Return the answer to the holder of a token; None while too many ask at once."""
        if not self._admit():
            return None
        return self._enrolment.answer(token, asked)

    def renew(self, user: str, asked: RenewalRequest) -> IssuedCertificate:
        """Return a device's next certificate.

        Raises:
            NotAllowedError: it gets none.
            StorageError: it cannot be written down.
        """
        made = self.parties.renew(user, read_request(asked.request))
        return IssuedCertificate(certificate=made.der)

    def _admit(self) -> bool:
        """Whether another stranger's request is answered at this moment."""
        now = self._clock.monotonic()
        gained = (now - self._counted) * REQUESTS_PER_SECOND
        self._allowance, self._counted = min(BURST, self._allowance + gained), now
        if self._allowance < 1.0:
            return False
        self._allowance -= 1.0
        return True
