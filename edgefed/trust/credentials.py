"""The credentials of one party: its private keys, its certificate, its fleet's authority, on disk.

A folder holds ``key.pem`` (Ed25519) and ``encryption.pem`` (X25519), which only their owner may
read, ``certificate.pem``, ``authority.pem``, and ``fleet.json`` with the fleet's name and broker.
It is written under another name and then renamed, so that a failure leaves no part of it.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import stat
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from edgefed.errors import NotAllowedError
from edgefed.files.writing import (
    make_folder,
    open_private,
    storage_error,
    sync_folder,
    write_atomic,
)
from edgefed.trust.certificates import Certificate, read_certificate
from edgefed.trust.issuing import KeyPair

KEY = "key.pem"
ENCRYPTION = "encryption.pem"
CERTIFICATE = "certificate.pem"
AUTHORITY = "authority.pem"
FLEET = "fleet.json"


@dataclass(frozen=True)
class Credentials:
    """The identity of a program in its fleet.

    Attributes:
        folder: of the files, from which TLS reads them.
        keys: the private keys.
        certificate: the party's own.
        authority: the fleet's.
        fleet: its name.
        broker: the address of its broker, ``mqtts://HOST:PORT``.
    """

    folder: Path
    keys: KeyPair = field(repr=False)
    certificate: Certificate
    authority: Certificate
    fleet: str
    broker: str

    def tls_context(self) -> ssl.SSLContext:
        """Return the context of a connection to the broker, with mutual authentication.

        Raises:
            NotAllowedError: ``trust.credentials``: the files changed meanwhile and do not fit.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            context.load_verify_locations(cadata=self.authority.pem().decode())
        except ssl.SSLError as error:
            raise _unusable(self.folder, f"{AUTHORITY} is damaged") from error
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Use these credentials in the next connections of a context.

        Raises:
            NotAllowedError: ``trust.credentials``: the files changed meanwhile and do not fit.
        """
        try:
            context.load_cert_chain(self.folder / CERTIFICATE, self.folder / KEY)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(self.folder, "certificate and key do not fit") from error


def save_credentials(made: Credentials) -> Credentials:
    """Write credentials to their folder, atomically replacing any present ones.

    Raises:
        StorageError: they cannot be written; the previous ones are intact.
    """
    folder = made.folder
    beside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.part")
    old = folder.with_name(f".{folder.name}.old")
    for left in folder.parent.glob(f".{folder.name}.*.part"):  # by a killed process
        shutil.rmtree(left, ignore_errors=True)
    try:
        make_folder(beside)
        for name, data in _contents(made).items():
            write_private(beside / name, data)
        sync_folder(beside)
        # In two renames, since a folder cannot replace one that has files
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        beside.rename(folder)
        sync_folder(folder.parent)  # the next program to use them has the old ones revoked
        shutil.rmtree(old, ignore_errors=True)
    except BaseException as error:  # Ctrl-C too
        # It failed between the two renames
        if old.exists() and not folder.exists():
            with suppress(OSError):
                old.rename(folder)
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError):
            raise storage_error(folder, error) from error
        raise
    return made


def load_credentials(folder: Path, now: datetime) -> Credentials:
    """Return the credentials in a folder, checked.

    Args:
        folder: as ``save_credentials`` wrote it.
        now: for the certificate's validity; a clock that is wrong by days has an error of its own.

    Raises:
        NotAllowedError: ``trust.credentials``, ``trust.permissions``, ``trust.authority``,
            ``trust.expired`` or ``trust.clock``.
    """
    recover(folder)
    keys = KeyPair(
        load_private_key(folder, KEY, Ed25519PrivateKey),
        load_private_key(folder, ENCRYPTION, X25519PrivateKey),
    )
    certificate, authority = _certificate(folder, CERTIFICATE), _certificate(folder, AUTHORITY)
    if not keys.fit(certificate):
        raise _unusable(folder, "certificate and key do not fit")
    if not certificate.is_issued_by(authority):
        raise NotAllowedError(
            f"The certificate in {folder} was issued by another authority.",
            code="trust.authority",
            hint="enrol again with a token of this fleet: edgefed-agent enroll TOKEN",
        )
    check_validity(certificate, now)
    address = _fleet(folder)
    return Credentials(folder, keys, certificate, authority, address["fleet"], address["broker"])


def set_broker(folder: Path, broker: str) -> None:
    """Change the address of the broker in the folder of some credentials.

    Raises:
        NotAllowedError: ``trust.credentials``: the folder has none.
        StorageError: the disk does not take it; the old address is intact.
    """
    _fleet(folder)
    record = json.loads((folder / FLEET).read_bytes())
    write_atomic(folder / FLEET, _fleet_text({**record, "broker": broker}))


def newer_credentials(own: Credentials, now: datetime) -> Credentials | None:
    """Return the new credentials in the folder of some, or None if they were not replaced.

    While they are being replaced, they are missing for a moment, which counts as not replaced.
    """
    with suppress(OSError, NotAllowedError):
        if (own.folder / CERTIFICATE).read_bytes() != own.certificate.pem():
            return load_credentials(own.folder, now)
    return None


def recover(folder: Path) -> None:
    """Undo the first rename of a ``save_credentials`` that was killed before its second."""
    old = folder.with_name(f".{folder.name}.old")
    if old.exists() and not folder.exists():
        with suppress(OSError):
            old.rename(folder)


def check_validity(certificate: Certificate, now: datetime) -> None:
    """Check that a certificate is valid now.

    Raises:
        NotAllowedError: ``trust.expired``; ``trust.clock`` when it is not valid yet, since
            certificates are valid from the past on.
    """
    if now < certificate.not_before:
        raise NotAllowedError(
            f"The certificate of {certificate.user} is not valid before "
            f"{certificate.not_before:%Y-%m-%d %H:%M} UTC, and this machine's clock says "
            f"{now:%Y-%m-%d %H:%M} UTC.",
            code="trust.clock",
            hint="set the clock of this machine: timedatectl",
        )
    if now > certificate.not_after:
        raise NotAllowedError(
            f"The certificate of {certificate.user} expired on "
            f"{certificate.not_after:%Y-%m-%d %H:%M} UTC; this machine's clock says "
            f"{now:%Y-%m-%d %H:%M} UTC.",
            code="trust.expired",
            hint="if the clock is right, enrol again with a new token: edgefed device invite NAME",
        )


def _contents(made: Credentials) -> dict[str, bytes]:
    record = {
        "fleet": made.fleet,
        "broker": made.broker,
        "name": made.certificate.name,
        "role": made.certificate.role,
    }
    return {
        KEY: private_pem(made.keys.signing),
        ENCRYPTION: private_pem(made.keys.encryption),
        CERTIFICATE: made.certificate.pem(),
        AUTHORITY: made.authority.pem(),
        FLEET: _fleet_text(record),
    }


def _fleet_text(record: dict[str, str]) -> bytes:
    return (json.dumps(record, indent=2) + "\n").encode()


def private_pem(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    """Return a private key as an unencrypted PEM file."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read."""
    with open_private(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def load_private_key(folder: Path, name: str, kind: type[Any]) -> Any:
    """Return a private key that no other user can read."""
    path = folder / name
    try:
        mode = path.stat().st_mode
        data = path.read_bytes()
        key = load_pem_private_key(data, password=None)
    except OSError as error:
        raise _unusable(folder, f"{name}: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _unusable(folder, f"{name} is not a private key") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise NotAllowedError(
            f"Others can read the private key {path} (mode {stat.S_IMODE(mode):o}).",
            code="trust.permissions",
            hint=f"chmod 600 {path}; if others may have read it, enrol again with a new token",
        )
    if not isinstance(key, kind):
        raise _unusable(folder, f"{name} is another kind of key")
    return key


def _certificate(folder: Path, name: str) -> Certificate:
    try:
        return read_certificate((folder / name).read_bytes())
    except OSError as error:
        raise _unusable(folder, f"{name}: {error.strerror}") from error
    except NotAllowedError as error:
        raise _unusable(folder, f"{name} is damaged") from error


def _fleet(folder: Path) -> dict[str, str]:
    try:
        record = json.loads((folder / FLEET).read_bytes())
        return {name: str(record[name]) for name in ("fleet", "broker")}
    except OSError as error:
        raise _unusable(folder, f"{FLEET}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unusable(folder, f"{FLEET} is damaged") from error


def _unusable(folder: Path, reason: str) -> NotAllowedError:
    return NotAllowedError(
        f"The credentials in {folder} cannot be used: {reason}.",
        code="trust.credentials",
        hint="enrol again with a new token: edgefed device invite NAME, edgefed-agent enroll TOKEN",
    )
