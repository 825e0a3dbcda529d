"""Short-lived credentials with which a check tries actions forbidden to devices and viewers.

The fleet's authority issues them on this machine. They are in the broker's access rules for the
length of the check, and in no list of devices.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from broker.listeners import COMMANDS
from broker.secured_check import SecuredCheck
from broker.secured_files import (
    SecuredFiles,
    access_lock,
    secured_files,
    write_access_locked,
)
from edgefed.config.values.address import Address
from edgefed.errors import EdgeFedError, StorageError, UnreachableError
from edgefed.files.writing import storage_error
from edgefed.trust.authority import AUTHORITY_FOLDER, Authority, load_authority
from edgefed.trust.certificates import Role
from edgefed.trust.credentials import Credentials, save_credentials
from edgefed.trust.issuing import new_keys
from edgefed.wire.topics import Topics

LIFE = timedelta(minutes=10)
_PAUSE = 0.1

_Change = Callable[[set[str], set[int]], tuple[set[str], set[int]]]
"""Returns users and revoked serial numbers in place of those that there are."""


@contextmanager
def probe_parties(
    trust: Path,
    address: Address,
    now: datetime,
    timeout: float,
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[IssuedProbes]:
    """Yield credentials that the running broker accepts, and withdraw them at the end.

    Args:
        trust: the folder of the fleet's certificates, with its authority.
        address: of the broker, with the credentials of the checking party.
        now: for the certificates.
        timeout: seconds until the broker must have read its rules again.
        monotonic: seconds that never go back.

    Raises:
        NotAllowedError: the authority cannot be used.
        StorageError: its files cannot be written.
        UnreachableError: ``broker.unapplied``: the broker does not read its rules again.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = _issue(load_authority(trust / AUTHORITY_FOLDER), trust, Path(folder), now)
        made.admit()
        try:
            _wait_until_applied(made, address, timeout, now, monotonic)
            yield made
        finally:
            made.clear()


@dataclass(frozen=True)
class IssuedProbes:
    """Two devices and a viewer; see ``secured_check.ProbeParties``.

    Attributes:
        authority: their issuer.
        trust: the folder of the fleet's certificates.
        devices, viewer: their credentials.
        now: time of issue.
    """

    authority: Authority
    trust: Path
    devices: tuple[Credentials, Credentials]
    viewer: Credentials
    now: datetime

    def admit(self) -> None:
        """Add them to the broker's rules."""
        own = self._own_users()
        self._change(lambda users, serials: (users | own, serials))

    def withdraw(self) -> None:
        """Revoke the first device and take its rules away, as the removal of a device does."""
        gone = self.devices[0].certificate
        self._change(lambda users, serials: (users - {gone.user}, serials | {gone.serial}))

    def clear(self) -> None:
        """Remove all traces of them from the broker's files."""
        own = self._own_users()
        gone = {probe.certificate.serial for probe in (*self.devices, self.viewer)}
        self._change(lambda users, serials: (users - own, serials - gone))

    def _own_users(self) -> set[str]:
        return {probe.certificate.user for probe in (*self.devices, self.viewer)}

    def _change(self, change: _Change) -> None:
        """Change the users that may connect, and the revocations, under the lock."""
        files = secured_files(self.trust)
        with access_lock(self.trust):
            users, serials = change(_users(files), _revoked(files))
            revoked = self.authority.revocations(sorted(serials), self.now)
            write_access_locked(self.trust, self.authority.fleet, users, revoked)


def _issue(authority: Authority, trust: Path, folder: Path, now: datetime) -> IssuedProbes:
    name = f"check-{secrets.token_hex(4)}"

    def credentials(role: Role, name: str) -> Credentials:
        keys = new_keys()
        return save_credentials(authority.own_credentials(folder, role, name, keys, now, LIFE))

    devices = credentials("device", f"{name}-1"), credentials("device", f"{name}-2")
    return IssuedProbes(authority, trust, devices, credentials("viewer", name), now)


def _users(files: SecuredFiles) -> set[str]:
    """Return the users in the present rules."""
    lines = _text(files.acl).splitlines()
    return {line.removeprefix("user ") for line in lines if line.startswith("user ")}


def _revoked(files: SecuredFiles) -> set[int]:
    """Return the serial numbers of revoked certificates."""
    try:
        listed = x509.load_pem_x509_crl(_text(files.revoked).encode())
    except ValueError as error:
        raise StorageError(
            f"{files.revoked} is not a list of revoked certificates.",
            code="storage.damaged",
            hint="restart the coordinator, which writes it again",
        ) from error
    return {entry.serial_number for entry in listed}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise storage_error(path, error) from error


def _wait_until_applied(
    made: IssuedProbes,
    address: Address,
    timeout: float,
    now: datetime,
    monotonic: Callable[[], float],
) -> None:
    """Return once the broker lets a probe publish.

    Raises:
        UnreachableError: it does not.
    """
    device = made.devices[0]
    check = SecuredCheck(address, device, None, timeout, now)
    topic = Topics(device.fleet).birth(device.certificate.user)
    deadline = monotonic() + timeout
    while monotonic() < deadline:
        with suppress(EdgeFedError), closing(check.connect(device, COMMANDS)) as probe:
            probe.subscribe(topic)
            probe.publish(topic, b"")
            if probe.receives(topic, b"", timeout=_PAUSE):
                return
    raise UnreachableError(
        f"The broker at {address} did not read its access rules again.",
        code="broker.unapplied",
        hint="run it with edgefed broker up, or have it read them: systemctl reload mosquitto",
    )
