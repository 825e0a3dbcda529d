"""Create a fleet's authority, and the credentials of the parties on its machine."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from edgefed.coordinator.members.enrolled_parties import EnrolledParties
from edgefed.coordinator.members.enrolment_store import EnrolmentStore
from edgefed.errors import NotAllowedError
from edgefed.files.writing import make_folder, storage_error, sync_folder
from edgefed.process.clock import Clock
from edgefed.trust.authority import AUTHORITY_FOLDER, Authority, new_authority, save_authority
from edgefed.trust.certificates import Role
from edgefed.trust.credentials import save_credentials
from edgefed.trust.issuing import new_keys

PART = ".{}.{}.part"


def create_fleet(
    trust: Path,
    fleet: str,
    broker: str,
    hosts: tuple[str, ...],
    operator: str,
    clock: Clock,
    life: timedelta,
    write_access: Callable[[Path, list[str], bytes], object],
) -> Authority:
    """Create the authority of a fleet and credentials of broker, coordinator and first operator.

    All of it is written into a temporary folder, which is renamed at the end, so that a failure
    leaves no part of a fleet.

    Args:
        trust: the fleet's folder, which is made.
        fleet: its name.
        broker: the broker's address, ``mqtts://HOST:PORT``.
        hosts: names and addresses under which the broker is reached.
        operator: name of the first operator.
        clock: for the validity of certificates.
        life: of certificates.
        write_access: writes the lists of users that may connect and of revoked certificates into a
            folder like ``trust``.

    Raises:
        NotAllowedError: ``enrol.exists``: there is one; ``trust.name``.
        StorageError: the disk does not take it; nothing was made.
    """
    _refuse_second(trust, fleet)
    make_folder(trust.parent)
    _remove_parts(trust)
    beside = trust.with_name(PART.format(trust.name, uuid.uuid4().hex[:8]))
    try:
        make_folder(beside)
        authority = new_authority(fleet, broker, hosts, clock.now())
        folder = make_folder(beside / AUTHORITY_FOLDER)
        save_authority(authority, folder)
        store = EnrolmentStore(folder)
        try:
            _enrol_own(authority, store, beside, operator, clock, life, write_access)
        finally:
            store.close()
        _put_in_place(beside, trust)
    except BaseException as error:  # Ctrl-C too
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError):
            raise storage_error(trust, error) from error
        raise
    return authority


def _enrol_own(
    authority: Authority,
    store: EnrolmentStore,
    folder: Path,
    operator: str,
    clock: Clock,
    life: timedelta,
    write_access: Callable[[Path, list[str], bytes], object],
) -> None:
    """Make the credentials of the parties on this machine, and write the access rules."""
    parties = EnrolledParties(authority, store, clock, life, lambda: None)
    own: tuple[tuple[Role, str], ...] = (
        ("broker", ""),
        ("coordinator", ""),
        ("operator", operator),
    )
    for role, name in own:
        made = authority.own_credentials(folder, role, name, new_keys(), clock.now(), life)
        save_credentials(made)
        parties.register(made.certificate)
        parties.note_use(made.certificate)
    write_access(folder, parties.users(), authority.revocations([], clock.now()))


def _refuse_second(trust: Path, fleet: str) -> None:
    if (trust / AUTHORITY_FOLDER).exists():
        raise NotAllowedError(
            f"Fleet {fleet} has an authority already, in {trust / AUTHORITY_FOLDER}.",
            code="enrol.exists",
            hint="use it: edgefed device invite NAME; or choose another --fleet; while nobody has "
            f"enrolled, you can delete {trust} and begin again",
        )
    if trust.exists() and any(trust.iterdir()):
        raise NotAllowedError(
            f"{trust} holds credentials of fleet {fleet}, whose authority is on another machine.",
            code="enrol.exists",
            hint="choose another --fleet or --state",
        )


def _put_in_place(beside: Path, trust: Path) -> None:
    """Rename the finished folder, and wait until the disk has the name."""
    if trust.exists():
        trust.rmdir()  # empty, as was checked
    beside.rename(trust)
    sync_folder(trust.parent)


def _remove_parts(trust: Path) -> None:
    """Remove the remains of a killed call."""
    for left in trust.parent.glob(PART.format(trust.name, "*")):
        shutil.rmtree(left, ignore_errors=True)
