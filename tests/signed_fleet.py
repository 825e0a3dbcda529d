"""A fleet with an authority: certificates of its parties, and a Mosquitto that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from broker.address import LOOPBACK, free_ports
from broker.broker_interface import BrokerProcess
from broker.child_process import ChildProcess, wait_until_accepting
from broker.mosquitto import find_mosquitto
from broker.secured_files import write_access
from edgefed.config.values.address import COMMANDS_OFFSET, Address
from edgefed.trust.certificates import Certificate, Role, user_of
from edgefed.trust.credentials import Credentials, save_credentials
from edgefed.trust.issuing import issue, make_authority, make_revocations, new_keys

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
    parties: dict[str, Certificate] = field(default_factory=dict)
    revoked: list[int] = field(default_factory=list)

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
        self.parties[certificate.user] = certificate
        made = Credentials(folder, keys, certificate, self.authority, self.fleet, url)
        return save_credentials(made)

    def write_access(self) -> None:
        """Write the access rules of all parties, for a broker that has rules."""
        revoked = make_revocations(self.authority, self.key, self.revoked, self.now, LIFE)
        users = [user for user in self.parties if user != "broker"]
        write_access(self.folder, self.fleet, users, revoked)

    def remove(self, user: str) -> None:
        """Revoke a certificate and take its rules away."""
        self.revoked.append(self.parties.pop(user).serial)
        self.write_access()

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
            "".join(_listener(trust.port + offset, own) for offset in (0, COMMANDS_OFFSET))
            + """\
allow_anonymous false
set_tcp_nodelay true
max_queued_messages 40000
user root
"""
        )
        log = folder / "broker.log"
        child = ChildProcess([str(program), "-c", str(file)], folder=folder, log=log)
        address = Address(LOOPBACK, trust.port, tls=True)
        wait_until_accepting(child, address.for_commands())
        super().__init__(address, child)


def _listener(port: int, folder: Path) -> str:
    return f"""\
listener {port} {LOOPBACK}
cafile {folder / "authority.pem"}
certfile {folder / "certificate.pem"}
keyfile {folder / "key.pem"}
require_certificate true
use_identity_as_username true
"""


@contextmanager
def signed_broker(folder: Path) -> Iterator[Trust]:
    """Run such a broker with an authority of its own."""
    trust = Trust(folder / "trust", port=free_ports())
    with SignedBroker(folder / "broker", trust):
        yield trust
