"""The authority of a fleet: its key, its certificate, and the scope of its signatures, in a folder.

The folder holds ``key.pem`` (Ed25519, readable by its owner only), ``certificate.pem`` and
``fleet.json``: name and broker of the fleet, and the names under which the broker is reached.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from edgefed.errors import EdgeFedError, NotAllowedError
from edgefed.files.writing import write_atomic
from edgefed.trust.certificates import Certificate, Role, read_certificate
from edgefed.trust.credentials import (
    CERTIFICATE,
    FLEET,
    KEY,
    Credentials,
    load_private_key,
    private_pem,
    write_private,
)
from edgefed.trust.issuing import (
    CLOCK_SKEW,
    CertificateRequest,
    KeyPair,
    issue,
    make_authority,
    make_revocations,
)

LIFE = timedelta(days=3650)
"""Of the authority's own certificate, and of a list of revoked ones, which the broker would refuse
everybody without: it is written anew with every change, so that its age says nothing."""

AUTHORITY_FOLDER = "authority"
"""Name of its folder, beside those of credentials; a device of this name is refused."""


@dataclass(frozen=True)
class Authority:
    """The signer of a fleet's certificates.

    Attributes:
        key: its private key.
        certificate: its own.
        fleet: the fleet's name.
        broker: address of the fleet's broker, ``mqtts://HOST:PORT``.
        hosts: names and addresses under which the broker is reached.
    """

    key: Ed25519PrivateKey = field(repr=False)
    certificate: Certificate
    fleet: str
    broker: str
    hosts: tuple[str, ...]

    def issue(
        self, role: Role, name: str, request: CertificateRequest, now: datetime, life: timedelta
    ) -> Certificate:
        """Return a certificate for a party's public keys; never valid for longer than its own.

        Raises:
            NotAllowedError: ``trust.name``; ``enrol.clock`` when this machine's clock is wrong.
        """
        self._check_clock(now)
        return issue(
            self.certificate,
            self.key,
            role=role,
            name=name,
            signing_key=request.signing_key,
            encryption_key=None if role == "broker" else request.encryption_key,
            now=now,
            life=min(life, self.certificate.not_after - now),
            hosts=self.hosts if role == "broker" else (),
        )

    def issue_again(self, old: Certificate, now: datetime, life: timedelta) -> Certificate:
        """Return another certificate for a party's keys, valid from now on."""
        # A broker has no encryption key, and issue leaves this one out
        encryption_key = old.encryption_key or X25519PrivateKey.generate().public_key()
        request = CertificateRequest(old.name, old.signing_key, encryption_key)
        return self.issue(old.role, old.name, request, now, life)

    def own_credentials(
        self, trust: Path, role: Role, name: str, keys: KeyPair, now: datetime, life: timedelta
    ) -> Credentials:
        """Return credentials of a party on this machine, to be saved below ``trust``."""
        request = CertificateRequest(name, keys.signing.public_key(), keys.encryption.public_key())
        certificate = self.issue(role, name, request, now, life)
        folder = trust / certificate.user
        return Credentials(folder, keys, certificate, self.certificate, self.fleet, self.broker)

    def revocations(self, serials: list[int], now: datetime) -> bytes:
        """Return the list of revoked certificates as a PEM file."""
        return make_revocations(self.certificate, self.key, serials, now, LIFE)

    def _check_clock(self, now: datetime) -> None:
        """Refuse to sign at a time at which this authority was not there."""
        if self.certificate.is_valid_at(now):
            return
        start, end = self.certificate.not_before, self.certificate.not_after
        raise NotAllowedError(
            f"The authority of fleet {self.fleet} is valid from {start:%Y-%m-%d} to"
            f" {end:%Y-%m-%d}, and this machine's clock says {now:%Y-%m-%d %H:%M} UTC.",
            code="enrol.clock",
            hint="set the clock of this machine: timedatectl",
        )


def new_authority(fleet: str, broker: str, hosts: tuple[str, ...], now: datetime) -> Authority:
    """Return an authority with a new key."""
    key = Ed25519PrivateKey.generate()
    return Authority(key, make_authority(key, fleet, now, LIFE), fleet, broker, hosts)


def save_authority(authority: Authority, folder: Path) -> None:
    """Write an authority into a folder that exists and holds none.

    Raises:
        OSError: the disk does not take it.
    """
    write_private(folder / KEY, private_pem(authority.key))
    write_private(folder / CERTIFICATE, authority.certificate.pem())
    write_private(folder / FLEET, _address(authority))


def save_address(authority: Authority, folder: Path) -> None:
    """Write the broker's address into the folder of an authority.

    Raises:
        StorageError: the disk does not take it; the old address is intact.
    """
    write_atomic(folder / FLEET, _address(authority))


def _address(authority: Authority) -> bytes:
    record = {"fleet": authority.fleet, "broker": authority.broker, "hosts": list(authority.hosts)}
    return (json.dumps(record, indent=2) + "\n").encode()


def load_authority(folder: Path) -> Authority:
    """Return the authority in a folder.

    Raises:
        NotAllowedError: ``trust.permissions``, ``enrol.authority``: it cannot be used.
    """
    key = load_private_key(folder, KEY, Ed25519PrivateKey)
    try:
        certificate = read_certificate((folder / CERTIFICATE).read_bytes())
        record: dict[str, Any] = json.loads((folder / FLEET).read_bytes())
        authority = Authority(
            key, certificate, str(record["fleet"]), str(record["broker"]), tuple(record["hosts"])
        )
        if certificate.signing_key != key.public_key() or certificate.role != "authority":
            raise ValueError("certificate and key do not fit")
    except (OSError, ValueError, KeyError, TypeError, RecursionError, EdgeFedError) as error:
        raise NotAllowedError(
            f"The authority in {folder} cannot be used: {error}.",
            code="enrol.authority",
            hint="restore the folder from a backup; without it, every device has to enrol again",
        ) from error
    return authority


def renewal_due(certificate: Certificate, now: datetime) -> bool:
    """Whether two thirds of a certificate's life are over."""
    # Without the time by which it is dated back
    start = certificate.not_before + CLOCK_SKEW
    return now >= start + (certificate.not_after - start) * 2 / 3
