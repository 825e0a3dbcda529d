"""The coordinator's login at the broker for enrolment, which needs no certificate.

That broker admits clients without a certificate on its one port, and cannot require one from some
of them. The coordinator therefore logs in with a password, over TLS. The password is random, and in
a file that only its owner can read; the broker has its hash.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgefed.files.writing import make_folder, storage_error, write_atomic

PASSWORD = "enrolment.password"
"""File of the password, in the fleet's folder of access rules."""

PASSWORDS = "enrolment.passwords"
"""File with the broker's line about it."""

ACCESS = "access"
"""The folder of access rules, below the fleet's folder of certificates."""

COORDINATOR_USER = "coordinator"

_ITERATIONS = 101
"""As in ``mosquitto_passwd``: 256 random bits cannot be guessed."""

_SALT_BYTES = 12


def ensure_login(trust: Path) -> str:
    """Return the password; make it and the broker's line about it if they are missing.

    Args:
        trust: the folder of the fleet's certificates on this machine, ``STATE/trust/FLEET``.

    Raises:
        StorageError: a file cannot be read or written.
    """
    folder = make_folder(trust / ACCESS)
    with _locked(folder):
        return _kept(folder / PASSWORD) or _made(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep the coordinator and the broker, started at one time, from making a login each."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise storage_error(folder, error) from error
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _kept(path: Path) -> str:
    try:
        return path.read_text(errors="replace") if path.exists() else ""
    except OSError as error:
        raise storage_error(path, error) from error


def _made(folder: Path) -> str:
    password = secrets.token_hex(32)
    line = _line(password, secrets.token_bytes(_SALT_BYTES))
    _write(folder / PASSWORDS, line)
    _write(folder / PASSWORD, password)  # last: once it is there, both are
    return password


def _write(path: Path, text: str) -> None:
    write_atomic(path, text.encode())
    give_to_owner(path)


def give_to_owner(path: Path) -> None:
    """Give a file that root has written to the owner of its folder."""
    owner = path.parent.stat()
    if os.geteuid() == 0 != owner.st_uid:
        with suppress(OSError):  # a file system without owners
            os.chown(path, owner.st_uid, owner.st_gid)


def _line(password: str, salt: bytes) -> str:
    """Return the line of a Mosquitto password file (PBKDF2 with SHA-512)."""
    made = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    encoded = (base64.b64encode(data).decode() for data in (salt, made))
    return f"{COORDINATOR_USER}:$7${_ITERATIONS}${'$'.join(encoded)}\n"
