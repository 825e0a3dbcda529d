"""The files of a secured broker: its certificate, the fleet's authority, and access rules."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from broker.acl import acl, enrolment_acl
from edgefed.errors import UsageError
from edgefed.files.writing import (
    make_folder,
    open_private,
    storage_error,
    write_atomic,
    write_shared,
)
from edgefed.trust import credentials
from edgefed.trust.enrolment_login import ACCESS, PASSWORDS, ensure_login, give_to_owner

Version = tuple[tuple[int, int, int], ...]
"""Of each file: inode, time of the last change, size."""

_LOCK = ".lock"


@dataclass(frozen=True)
class SecuredFiles:
    """The paths of the files.

    Attributes:
        folder: the broker's credentials.
        access: access rules and revocations; a folder of its own, since credentials are replaced as
            a whole.
    """

    folder: Path
    access: Path

    @property
    def authority(self) -> Path:
        """The authority's certificate."""
        return self.folder / credentials.AUTHORITY

    @property
    def certificate(self) -> Path:
        """The broker's certificate."""
        return self.folder / credentials.CERTIFICATE

    @property
    def key(self) -> Path:
        """The broker's private key."""
        return self.folder / credentials.KEY

    @property
    def revoked(self) -> Path:
        """The list of revoked certificates."""
        return self.access / "revoked.pem"

    @property
    def acl(self) -> Path:
        """The access rules."""
        return self.access / "acl"

    @property
    def enrolment_acl(self) -> Path:
        """The access rules of enrolment."""
        return self.access / "enrolment.acl"

    @property
    def enrolment_passwords(self) -> Path:
        """The password file of enrolment, with the coordinator's password only."""
        return self.access / PASSWORDS

    @property
    def exist(self) -> bool:
        """Whether the files exist: the fleet has an authority on this machine."""
        return self.access.is_dir()

    def of_fleet(self) -> tuple[Path, ...]:
        """Return every file that the fleet's broker reads."""
        return (self.authority, self.certificate, self.key, self.revoked, self.acl)

    def of_enrolment(self) -> tuple[Path, ...]:
        """Return every file that the broker for enrolment reads."""
        own = (self.authority, self.certificate, self.key)
        return (*own, self.enrolment_acl, self.enrolment_passwords)

    def require(self) -> None:
        """Check that all files are there.

        Raises:
            UsageError: ``broker.files``: one is missing or unreadable.
        """
        for path in dict.fromkeys((*self.of_fleet(), *self.of_enrolment())):
            if not os.access(path, os.R_OK):
                raise UsageError(
                    f"The broker's file {path} is missing or cannot be read.",
                    code="broker.files",
                    hint="run edgefed broker up as the user of edgefed init, on that machine",
                )


def version_of(files: Iterable[Path]) -> Version | None:
    """Return a value that changes when a file does, or None while one is missing.

    A file is missing for a moment while credentials are being replaced.
    """
    try:
        stats = [path.stat() for path in files]
    except OSError:
        return None
    return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)


def secured_files(trust: Path) -> SecuredFiles:
    """Return the paths of a fleet's broker files.

    Args:
        trust: the folder of the fleet's certificates on this machine, ``STATE/trust/FLEET``.
    """
    return SecuredFiles(trust / "broker", trust / ACCESS)


def write_access(trust: Path, fleet: str, users: Iterable[str], revoked_pem: bytes) -> SecuredFiles:
    """Write the access rules and the revocations; ``edgefed broker up`` applies them at once.

    The rules are written before the revocations: a removed device first loses its rights, and then
    its certificate is refused.

    Args:
        trust: the folder of the fleet's certificates on this machine, ``STATE/trust/FLEET``.
        fleet: the fleet's name.
        users: common names of all valid certificates but the broker's and the authority's.
        revoked_pem: the list of revoked certificates.

    Raises:
        StorageError: a file cannot be written.
    """
    with access_lock(trust):
        return write_access_locked(trust, fleet, users, revoked_pem)


def write_access_locked(
    trust: Path, fleet: str, users: Iterable[str], revoked_pem: bytes
) -> SecuredFiles:
    """Do the same as ``write_access``, with ``access_lock`` held."""
    files = secured_files(trust)
    write_shared(files.acl, acl(fleet, users).encode())
    write_shared(files.revoked, revoked_pem)
    _write_enrolment_access(trust, fleet)
    return files


def write_enrolment_access(trust: Path, fleet: str) -> None:
    """Write the access rules of the broker for enrolment if an older version did not.

    Raises:
        StorageError: a file cannot be written.
    """
    with access_lock(trust):
        _write_enrolment_access(trust, fleet)


def _write_enrolment_access(trust: Path, fleet: str) -> None:
    path, rules = secured_files(trust).enrolment_acl, enrolment_acl(fleet).encode()
    ensure_login(trust)
    try:
        same = path.read_bytes() == rules
    except OSError:
        same = False
    if not same:  # else the broker would read its files again for nothing
        write_atomic(path, rules)
        give_to_owner(path)


@contextmanager
def access_lock(trust: Path) -> Iterator[None]:
    """Hold the lock of the access files, which the coordinator and a check of the rules change.

    Hold it from reading the files until the new contents that depend on them are written.

    Raises:
        StorageError: the folder cannot be used.
    """
    folder = make_folder(secured_files(trust).access)
    try:
        file = open_private(folder / _LOCK, "ab")
        give_to_owner(folder / _LOCK)
    except OSError as error:
        raise storage_error(folder, error) from error
    with file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
