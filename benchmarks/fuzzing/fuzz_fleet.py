"""A fleet with an authority whose keys are known, so that inputs can be signed and made again.

Keys come from the names of their holders. Certificates hold random numbers, so they are not made
anew: they are in ``certificates/fleet``, written by ``python -m benchmarks.fuzzing.fuzz_fleet``.
"""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from functools import lru_cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.fuzzing.fuzz_clock import BEGIN
from edgefed.trust.authority import Authority, save_authority
from edgefed.trust.certificates import Certificate, Role, read_certificate
from edgefed.trust.credentials import Credentials, save_credentials
from edgefed.trust.issuing import KeyPair, issue, make_authority

FLEET = "fuzz"
BROKER = "mqtts://127.0.0.1:1"
LIFE = timedelta(days=3600)
FOLDER = Path(__file__).parent / "certificates" / "fleet"

AUTHORITY, STRANGERS_AUTHORITY = "authority", "other-authority"
PARTIES: dict[str, tuple[Role, str]] = {
    "coordinator": ("coordinator", ""),
    "operator": ("operator", "ops"),
    "viewer": ("viewer", "eye"),
    "broker": ("broker", ""),
    "dev-1": ("device", "dev-1"),
    "dev-2": ("device", "dev-2"),
    "dev-3": ("device", "dev-3"),
    "renewed": ("device", "dev-1"),
    "revoked": ("device", "dev-4"),
    "stranger": ("device", "dev-1"),
}
"""Everybody who signs: ``renewed`` has dev-1's next certificate, ``stranger`` another fleet's."""


@lru_cache
def keys_of(party: str) -> KeyPair:
    """Return the private keys of somebody."""
    seeds = (hashlib.sha256(f"{use} {party}".encode()).digest() for use in ("sign", "encrypt"))
    signing, encryption = seeds
    return KeyPair(
        Ed25519PrivateKey.from_private_bytes(signing),
        X25519PrivateKey.from_private_bytes(encryption),
    )


@lru_cache
def certificate_of(party: str) -> Certificate:
    """Return the certificate of somebody."""
    return read_certificate((FOLDER / f"{party}.der").read_bytes())


@lru_cache
def credentials_of(party: str, folder: Path = FOLDER) -> Credentials:
    """Return the credentials of somebody, which are not on disk."""
    own, authority = certificate_of(party), certificate_of(AUTHORITY)
    return Credentials(folder, keys_of(party), own, authority, FLEET, BROKER)


def saved_credentials(party: str, trust: Path) -> Credentials:
    """Return the credentials of somebody, written below a folder."""
    return save_credentials(credentials_of(party, trust / certificate_of(party).user))


def saved_authority(folder: Path) -> Authority:
    """Return the fleet's authority, written into a folder."""
    own = keys_of(AUTHORITY).signing
    made = Authority(own, certificate_of(AUTHORITY), FLEET, BROKER, ("127.0.0.1",))
    folder.mkdir(parents=True)
    save_authority(made, folder)
    return made


def fleet_json() -> bytes:
    """Return the file that names the fleet, of a device and of the authority alike."""
    told = {"fleet": FLEET, "broker": BROKER, "hosts": ["127.0.0.1"], "name": "dev-1"}
    return json.dumps(told).encode()


def main() -> None:
    """Write the certificates; inputs of signed targets differ from then on."""
    FOLDER.mkdir(exist_ok=True)
    ours, theirs = (
        make_authority(keys_of(name).signing, FLEET, BEGIN, timedelta(days=3650))
        for name in (AUTHORITY, STRANGERS_AUTHORITY)
    )
    (FOLDER / f"{AUTHORITY}.der").write_bytes(ours.der)
    for party, (role, name) in PARTIES.items():
        issuer, key = (theirs, STRANGERS_AUTHORITY) if party == "stranger" else (ours, AUTHORITY)
        keys = keys_of(party)
        made = issue(
            issuer,
            keys_of(key).signing,
            role=role,
            name=name,
            signing_key=keys.signing.public_key(),
            encryption_key=keys.encryption.public_key(),
            now=BEGIN,
            life=LIFE,
            hosts=("127.0.0.1",) if role == "broker" else (),
        )
        (FOLDER / f"{party}.der").write_bytes(made.der)


if __name__ == "__main__":
    main()
