"""A fleet with an authority: certificates of its parties, and a Mosquitto that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from broker.address import LOOPBACK, free_port
from broker.child_process import ChildProcess, wait_until_accepting
from broker.mosquitto import find_mosquitto
from edgefed.config.address import Address
from edgefed.trust.certificates import Certificate, Role, user_of
from edgefed.trust.credentials import Credentials, save_credentials
from edgefed.trust.issuing import issue, make_authority, new_keys

FLEET = "signed"
LIFE = timedelta(days=30)


@dataclass
class Trust:
    """An authority in memory, and the credentials that it issued, on disk.

    Attributes:
        folder: of the credentials; as STATE/trust/FLEET of a program.
        port: of the fleet's broker.
    """

    folder: Path
    port: int = 8883
    fleet: str = FLEET
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    now: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    authority: Certificate = field(init=False)

    def __post_init__(self) -> None:
        self.authority = make_authority(self.key, self.fleet, self.now, timedelta(days=3650))

    def issue(
        self, role: Role, name: str = "", *, now: datetime | None = None, life: timedelta = LIFE
    ) -> Credentials:
        """Return new credentials of a party, saved in the folder of its user."""
        keys = new_keys()
        certificate = issue(
            self.authority,
            self.key,
            role=role,
            name=name,
            signing_key=keys.signing.public_key(),
            encryption_key=keys.encryption.public_key(),
            now=now or self.now,
            life=life,
            hosts=(LOOPBACK, "localhost") if role == "broker" else (),
        )
        folder = self.folder / user_of(role, name)
        url = f"mqtts://{LOOPBACK}:{self.port}"
        made = Credentials(folder, keys, certificate, self.authority, self.fleet, url)
        return save_credentials(made)

    def address(self, credentials: Credentials) -> Address:
        """Return the broker's address for one party."""
        return Address(LOOPBACK, self.port, tls=True, credentials=credentials)


@contextmanager
def signed_broker(folder: Path) -> Iterator[Trust]:
    """Run a Mosquitto that lets in only those with a certificate of the fleet, without rules.

    It stands for a broker that somebody else controls: whoever has any certificate of the fleet may
    publish and read everything, so that what holds then holds by signatures alone.
    """
    trust = replace(Trust(folder / "trust"), port=free_port())
    own = trust.issue("broker")
    program = find_mosquitto()
    assert program is not None
    text = f"""\
listener {trust.port} {LOOPBACK}
cafile {own.folder / "authority.pem"}
certfile {own.folder / "certificate.pem"}
keyfile {own.folder / "key.pem"}
require_certificate true
use_identity_as_username true
allow_anonymous false
user root
"""
    file = folder / "mosquitto.conf"
    file.write_text(text)
    child = ChildProcess([str(program), "-c", str(file)], folder=folder, log=folder / "broker.log")
    try:
        wait_until_accepting(child, Address(LOOPBACK, trust.port))
        yield trust
    finally:
        child.stop()
