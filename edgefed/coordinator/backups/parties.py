"""The members of a restored fleet: the parties of a backup, less those removed since.

A backup does not contain later changes. If a later list of parties exists (of the state that the
restore replaces), each party and each certificate is taken from the later of the two, and
certificates that either of them has revoked stay revoked. The broker's list of revoked certificates
counts as well, if this authority signed it. Tokens that were not used are void.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from cryptography import x509

from edgefed.coordinator.members.enrolled_parties import EnrolledParties
from edgefed.coordinator.members.enrolment_store import (
    EnrolmentStore,
    Invitation,
    Issued,
    Party,
    hexadecimal,
)
from edgefed.coordinator.members.own_parties import OwnParties
from edgefed.errors import NotAllowedError, StorageError
from edgefed.process.clock import Clock
from edgefed.trust.authority import AUTHORITY_FOLDER, Authority, load_authority

REVOCATIONS = Path("access", "revoked.pem")
"""The broker's list of revoked certificates, in the folder of a fleet's certificates."""

NOT_CONFIRMED = "not confirmed at the restore"


@dataclass(frozen=True)
class LaterState:
    """The known changes after a backup.

    Attributes:
        parties, issued: of a later list of parties.
        revoked: serial numbers of revoked certificates, in hexadecimal.
    """

    parties: tuple[Party, ...] = ()
    issued: tuple[Issued, ...] = ()
    revoked: frozenset[str] = frozenset()


def later_state(trust: Path, authority: Authority, warn: Callable[[str], None]) -> LaterState:
    """Return the state of an authority's fleet in a folder of certificates.

    Args:
        trust: the folder of a fleet's certificates, perhaps incomplete.
        authority: of the backup.
        warn: called with each part that cannot be read.

    Raises:
        NotAllowedError: ``restore.authority``: the folder has another authority.
    """
    folder = trust / AUTHORITY_FOLDER
    parties: tuple[Party, ...] = ()
    issued: tuple[Issued, ...] = ()
    if folder.exists():
        try:
            _check_same(load_authority(folder), authority, trust)
            with closing(EnrolmentStore(folder)) as store:
                parties, issued = tuple(store.parties()), tuple(store.issued())
        except (StorageError, NotAllowedError) as error:
            if error.code == "restore.authority":
                raise
            warn(f"the present list of devices cannot be read: {error.message}")
    return LaterState(parties, issued, _revoked(trust / REVOCATIONS, authority, warn))


def _check_same(present: Authority, authority: Authority, trust: Path) -> None:
    if present.certificate.public_bytes != authority.certificate.public_bytes:
        raise NotAllowedError(
            f"{trust} belongs to another authority than the backup.",
            code="restore.authority",
            hint="choose another --state, or move that folder away if its fleet is given up",
        )


def _revoked(path: Path, authority: Authority, warn: Callable[[str], None]) -> frozenset[str]:
    """Return the serial numbers on a broker's list that the authority signed."""
    try:
        revocations = x509.load_pem_x509_crl(path.read_bytes())
        if not revocations.is_signature_valid(authority.key.public_key()):
            raise ValueError("another authority signed it")
        return frozenset(hexadecimal(entry.serial_number) for entry in revocations)
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError, TypeError) as error:
        warn(f"the list of revoked certificates {path} cannot be used: {error}")
        return frozenset()


def merge_later(store: EnrolmentStore, later: Iterable[LaterState], now: str) -> None:
    """Merge the known later changes into the list of a backup.

    Args:
        store: the backup's list.
        later: the later states.
        now: the time of a revocation of which only the fact is known.
    """
    parties = {party.user: party for party in store.parties()}
    issued = {certificate.serial: certificate for certificate in store.issued()}
    void = [
        invitation for invitation in store.invitations() if invitation.state in ("open", "pending")
    ]
    for state in later:
        for party in state.parties:
            known = parties.get(party.user)
            parties[party.user] = party if known is None else _newer(known, party)
        for certificate in state.issued:
            known_one = issued.get(certificate.serial, certificate)
            issued[certificate.serial] = replace(
                certificate,
                used=max(known_one.used, certificate.used),
                revoked=known_one.revoked or certificate.revoked,
            )
        for serial in state.revoked & issued.keys():
            issued[serial] = replace(issued[serial], revoked=issued[serial].revoked or now)
    for user, party in parties.items():
        own = [certificate for certificate in issued.values() if certificate.user == user]
        if party.state == "enrolled" and own and all(certificate.revoked for certificate in own):
            parties[user] = replace(party, state="revoked", ended=now, reason="removed")
        elif party.state == "revoked":
            for certificate in own:
                issued[certificate.serial] = replace(
                    certificate, revoked=certificate.revoked or now
                )
    rows: list[Party | Issued | Invitation] = [*parties.values(), *issued.values()]
    store.write(rows, delete=void)


def _newer(one: Party, other: Party) -> Party:
    """Return which of two rows of a party is the later one; of the same time, a revoked one."""

    def moment(party: Party) -> tuple[str, bool]:
        return max(party.enrolled, party.ended), party.state == "revoked"

    return max(one, other, key=moment)


def admit_only(
    trust: Path,
    authority: Authority,
    store: EnrolmentStore,
    clock: Clock,
    life: timedelta,
    refused: Iterable[str],
    write_access: Callable[[Iterable[str], bytes], object],
) -> None:
    """End the memberships that were not confirmed, and give the parties of this machine new keys.

    The new certificates of coordinator and broker begin later than all earlier ones: devices that
    see them refuse messages of the old coordinator if it comes back.

    Args:
        trust: the restored folder of the fleet's certificates.
        authority: in it.
        store: its list.
        clock: for the validity of certificates.
        life: of certificates.
        refused: users that the operator has not confirmed.
        write_access: writes the broker's list of users that may connect.
    """
    parties = EnrolledParties(authority, store, clock, life, lambda: None)
    for user in refused:
        parties.revoke(user, NOT_CONFIRMED)
    own = OwnParties(trust, parties, clock, life)
    for party in parties.all():
        if not _is_own(trust, party):
            continue
        if party.state == "enrolled":
            own.rotate(party.user)
        else:
            shutil.rmtree(trust / party.user, ignore_errors=True)
    write_access(parties.users(), authority.revocations(parties.revoked_serials(), clock.now()))


def to_confirm(trust: Path, parties: Iterable[Party]) -> list[Party]:
    """Return the parties that an operator has to confirm: those on other machines."""
    return [party for party in parties if party.state == "enrolled" and not _is_own(trust, party)]


def _is_own(trust: Path, party: Party) -> bool:
    """Whether a party is on the coordinator's machine: its keys are in the backup, or are made."""
    if party.role == "device":
        return False
    return party.role in ("broker", "coordinator") or (trust / party.user).is_dir()
