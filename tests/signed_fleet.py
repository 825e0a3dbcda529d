"""A fleet with an authority: certificates of its parties, and a Mosquitto that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from broker.address import LOOPBACK, free_port
from broker.child_process import ChildProcess, wait_until_accepting
from broker.mosquitto import find_mosquitto
from broker.running_broker import BrokerProcess
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


class SignedBroker(BrokerProcess):
    """A Mosquitto that lets in everybody with a certificate of the fleet, and has no other rules.

    It stands for a broker that somebody else controls: whoever has any certificate may publish and
    read everything, so that what holds then holds by signatures and encryption alone.

    Args:
        folder: of its configuration and log.
        trust: makes its certificate, once; it listens on the port of it.
        program: the Mosquitto program; searched for when left out.
    """

    name = "mosquitto"

    def __init__(self, folder: Path, trust: Trust, program: Path | None = None) -> None:
        own = trust.folder / "broker"
        if not own.exists():
            trust.issue("broker")
        program = program or find_mosquitto()
        assert program is not None
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "mosquitto.conf"
        file.write_text(
            f"""\
listener {trust.port} {LOOPBACK}
cafile {own / "authority.pem"}
certfile {own / "certificate.pem"}
keyfile {own / "key.pem"}
require_certificate true
use_identity_as_username true
allow_anonymous false
set_tcp_nodelay true
max_queued_messages 40000
user root
"""
        )
        log = folder / "broker.log"
        child = ChildProcess([str(program), "-c", str(file)], folder=folder, log=log)
        address = Address(LOOPBACK, trust.port)
        wait_until_accepting(child, address)
        super().__init__(address, child)


@contextmanager
def signed_broker(folder: Path) -> Iterator[Trust]:
    """Run such a broker with an authority of its own."""
    trust = Trust(folder / "trust", port=free_port())
    with SignedBroker(folder / "broker", trust):
        yield trust
