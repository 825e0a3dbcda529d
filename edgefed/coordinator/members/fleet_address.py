"""Change the address under which a fleet's broker is reached."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from edgefed.coordinator.members.enrolled_parties import EnrolledParties
from edgefed.coordinator.members.enrolment_store import EnrolmentStore
from edgefed.coordinator.members.own_parties import OwnParties
from edgefed.process.clock import Clock
from edgefed.process.lock import FolderLock
from edgefed.trust.authority import AUTHORITY_FOLDER, Authority, load_authority, save_address
from edgefed.trust.credentials import set_broker


def change_address(
    trust: Path,
    folder: Path,
    broker: str,
    hosts: tuple[str, ...],
    clock: Clock,
    life: timedelta,
    write_access: Callable[[list[str], bytes], object],
) -> Authority:
    """Change the address in tokens and credentials, and give the broker a certificate for it.

    The authority is changed last: after a kill at any moment, the same call can be repeated.

    Args:
        trust: the folder of the fleet's certificates on this machine.
        folder: the coordinator's state folder.
        broker: the new address, ``mqtts://HOST:PORT``.
        hosts: names and addresses under which the broker is reached.
        clock: for the validity of the certificate.
        life: of the certificate.
        write_access: writes the broker's lists of users that may connect and of revoked
            certificates.

    Raises:
        NotAllowedError: ``state.locked``: the coordinator runs; ``enrol.authority``.
        StorageError: the disk does not take it.
    """
    lock = FolderLock(folder, "edgefed broker address")
    try:
        authority = trust / AUTHORITY_FOLDER
        moved = replace(load_authority(authority), broker=broker, hosts=hosts)
        with closing(EnrolmentStore(authority)) as store:
            parties = EnrolledParties(moved, store, clock, life, lambda: None)
            own = OwnParties(trust, parties, clock, life)
            own.rotate("broker")
            for user in own.users():
                set_broker(trust / user, broker)
            revoked = moved.revocations(parties.revoked_serials(), clock.now())
            write_access(parties.users(), revoked)
        save_address(moved, authority)
    finally:
        lock.release()
    return moved
