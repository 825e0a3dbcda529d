"""Take a consistent snapshot of a coordinator's folder, also while the coordinator runs.

The rows of the database and the files that they name must belong to the same commit. While no other
process can commit, for some milliseconds, a reader of the database fixes its state, and the files
of all runs that may go on get a second name (a hard link) in a folder of the backup. After that,
the coordinator may delete or replace its own names. Files of a run are never changed in place,
except logs, which only grow.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from edgefed.coordinator.alerts.open_alerts import FILE as OPEN_ALERTS
from edgefed.coordinator.backups.archive import COORDINATOR, TRUST, Manifest, write_archive
from edgefed.coordinator.devices.device_pauses import FILE as PAUSES
from edgefed.coordinator.devices.trust_scores import FILE as TRUST_SCORES
from edgefed.coordinator.members.enrolment_store import FILE as ENROLMENT
from edgefed.coordinator.rollouts.rollout_store import FILE as ROLLOUTS
from edgefed.coordinator.storage.run_store import LAST_DELETED, Store
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.database.database import copy_database
from edgefed.errors import UnknownNameError
from edgefed.files.writing import make_folder, storage_error
from edgefed.process.clock import Clock, timestamp
from edgefed.process.lock import FolderLock
from edgefed.trust.authority import AUTHORITY_FOLDER

STAGING = "backup"
"""Folder of the second names, in the coordinator's folder; exists while a backup is made."""

RUNS, DATA, BLOBS, ROWS = "runs", "data", "blobs", "edgefed.db"

AUTHORITY_FILES = ("key.pem", "certificate.pem", "fleet.json")
OWN_PARTIES = ("broker", "coordinator", "operator.*", "viewer.*")
"""Whose credentials are part of a backup: those of parties on the coordinator's machine."""


def back_up(folder: Path, trust: Path, fleet: str, target: Path, clock: Clock) -> Manifest:
    """Write a backup of a coordinator's state and of its fleet's authority.

    Args:
        folder: the coordinator's state folder.
        trust: the folder of the fleet's certificates on this machine; may be missing.
        fleet: the name of the fleet.
        target: the file to write, which replaces an older one.
        clock: for the time of the state.

    Raises:
        UnknownNameError: ``backup.nothing``: the fleet has no state here.
        NotAllowedError: ``state.locked``: another backup is being made.
        StorageError: a file cannot be read, or the disk does not take it.
    """
    if not (folder / ROWS).exists() and not (trust / AUTHORITY_FOLDER).exists():
        raise UnknownNameError(
            f"Fleet {fleet} has no coordinator's state on this machine, in {folder}.",
            code="backup.nothing",
            hint="run it on the coordinator's machine, as its user; name the fleet with --fleet",
        )
    with _staging(folder) as staging:
        created = timestamp(clock.now())
        files = _coordinator(folder, staging) if (folder / ROWS).exists() else {}
        files |= _authority(trust, staging)
        return write_archive(target, fleet, created, files)


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """Yield an empty folder on the same file system; a killed backup's is emptied first."""
    staging = folder / STAGING
    lock = FolderLock(staging, "edgefed backup")
    try:
        for left in staging.iterdir():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
        yield make_folder(staging / "files")
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        lock.release()


def _coordinator(folder: Path, staging: Path) -> dict[str, Path]:
    """Return the files of a coordinator's folder by their names in the archive."""
    place = make_folder(staging / COORDINATOR)
    with ExitStack() as stack:
        store, writer = (stack.enter_context(closing(Store(folder))) for _ in range(2))
        with writer.paused():
            stack.enter_context(store.snapshot())
            records = store.runs()
            for record in records:
                if record.status != "finished":
                    _keep_run(folder, place, record)
                    _keep_blobs(folder, place, store, record)
        store.copy_database(place / ROWS)
    for record in records:
        if record.status == "finished":
            _keep_run(folder, place, record)
    _keep(folder / RUNS / LAST_DELETED, place / RUNS / LAST_DELETED)
    for name in (PAUSES, TRUST_SCORES, OPEN_ALERTS, ROLLOUTS):
        if (folder / name).exists():
            copy_database(folder / name, place / name)
    _keep_folder(folder / DATA, place / DATA)
    return _named(place, COORDINATOR)


def _authority(trust: Path, staging: Path) -> dict[str, Path]:
    """Return the files of the authority and of the parties on its machine."""
    source = trust / AUTHORITY_FOLDER
    if not source.exists():
        return {}
    place = make_folder(staging / TRUST)
    copy_database(source / ENROLMENT, make_folder(place / AUTHORITY_FOLDER) / ENROLMENT)
    for name in AUTHORITY_FILES:
        _keep(source / name, place / AUTHORITY_FOLDER / name)
    for pattern in OWN_PARTIES:
        for party in trust.glob(pattern):
            _keep_folder(party, place / party.name)
    return _named(place, TRUST)


def _keep_run(folder: Path, place: Path, record: RunRecord) -> None:
    _keep_folder(folder / RUNS / record.run, place / RUNS / record.run)


def _keep_blobs(folder: Path, place: Path, store: Store, record: RunRecord) -> None:
    for digest in store.blobs(record.run):
        target = place / BLOBS / digest
        if not target.exists():
            _keep(folder / BLOBS / digest, target)


def _keep_folder(source: Path, target: Path) -> None:
    """Keep the files in a folder and below; hidden ones are not finished."""
    for folder, _, names in os.walk(source):  # passes over what is deleted meanwhile
        for path in (Path(folder, name) for name in names):
            relative = path.relative_to(source)
            if path.is_file() and not any(part.startswith(".") for part in relative.parts):
                _keep(path, target / relative)


def _keep(source: Path, target: Path) -> None:
    """Give a file a second name; copy it where the file system has no such names.

    A file that is gone is left out; the part that needs it reports that when it is restored.
    """
    make_folder(target.parent)
    try:
        try:
            os.link(source, target)
        except FileNotFoundError:
            return
        except OSError:
            shutil.copyfile(source, target)
    except OSError as error:
        raise storage_error(target, error) from error


def _named(place: Path, prefix: str) -> dict[str, Path]:
    files = (path for path in place.rglob("*") if path.is_file())
    return {f"{prefix}/{path.relative_to(place).as_posix()}": path for path in files}
