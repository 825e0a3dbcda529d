"""A fleet with an authority, a Mosquitto with TLS, and clients with certificates, for tests."""

from __future__ import annotations

import functools
import os
import queue
import secrets
import signal
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

import broker.mosquitto
from broker.address import LOOPBACK
from broker.child_process import NO_LIMITS, ChildProcess, ProcessLimits, wait_until_accepting
from broker.mosquitto import find_mosquitto
from broker.secured_broker import ENROLMENT_PROCESS
from broker.secured_configuration import enrolment_configuration, secured_configuration
from broker.secured_files import SecuredFiles, secured_files, write_access
from edgefed.config.values.address import Address
from edgefed.trust.certificates import Certificate, Role
from edgefed.trust.credentials import Credentials, save_credentials
from edgefed.trust.issuing import issue, make_authority, make_revocations, new_keys
from edgefed.wire.topics import CLIENT_ID_PREFIX
from tests.broker.clients import PATIENCE
from tests.broker.servers import USER

FLEET = "lab"
YEAR = timedelta(days=365)
_PLUGIN = Path(broker.mosquitto.__file__).parent


@dataclass
class TlsFleet:
    """An authority, and the credentials that it has issued.

    Attributes:
        state: the folder of all programs' state.
        port: the broker's first.
    """

    state: Path
    port: int
    key: Ed25519PrivateKey
    authority: Certificate
    parties: dict[str, Credentials] = field(default_factory=dict)
    revoked: list[int] = field(default_factory=list)

    @property
    def address(self) -> Address:
        return Address(LOOPBACK, self.port, tls=True)

    @property
    def trust(self) -> Path:
        return self.state / "trust" / FLEET

    @property
    def files(self) -> SecuredFiles:
        return secured_files(self.trust)

    def add(self, role: Role, name: str = "", *, life: timedelta = YEAR) -> Credentials:
        """Issue credentials; the access rules are those of the last ``write_access``."""
        keys = new_keys()
        made = issue(
            self.authority,
            self.key,
            role=role,
            name=name,
            signing_key=keys.signing.public_key(),
            encryption_key=keys.encryption.public_key(),
            now=datetime.now(timezone.utc),
            life=life,
            hosts=[LOOPBACK, "localhost"] if role == "broker" else [],
        )
        folder = self.trust / made.user
        saved = Credentials(folder, keys, made, self.authority, FLEET, str(self.address))
        self.parties[made.user] = save_credentials(saved)
        return saved

    def remove(self, user: str) -> None:
        """Revoke the credentials of a party and take its rules away."""
        self.revoked.append(self.parties.pop(user).certificate.serial)
        self.write_access()

    def write_access(self) -> None:
        now = datetime.now(timezone.utc)
        revoked = make_revocations(self.authority, self.key, self.revoked, now, YEAR)
        users = [user for user in self.parties if user != "broker"]
        write_access(self.trust, FLEET, users, revoked)


def make_fleet(state: Path, port: int, parties: Sequence[tuple[Role, str]]) -> TlsFleet:
    """Create an authority and credentials of a broker, a coordinator and these parties."""
    key = Ed25519PrivateKey.generate()
    authority = make_authority(key, FLEET, datetime.now(timezone.utc), YEAR)
    fleet = TlsFleet(state, port, key, authority)
    fleet.add("broker")
    fleet.add("coordinator")
    for role, name in parties:
        fleet.add(role, name)
    fleet.write_access()
    return fleet


def build_plugin(folder: Path, before: str = "", after: str = "") -> Path:
    """Build the plug-in from its source, a part of which is replaced, without any warning."""
    text = (_PLUGIN / "subscriptions.c").read_text()
    assert before in text
    path = folder / "plugin.so"
    path.write_bytes(_compiled(text.replace(before, after) if before else text))
    return path


@functools.cache
def _compiled(text: str) -> bytes:
    """Return the plug-in of a source, which is compiled once."""
    strict = (
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fvisibility=hidden",
        "-shared",
        "-fPIC",
    )
    with TemporaryDirectory() as folder:
        source, path = Path(folder) / "plugin.c", Path(folder) / "plugin.so"
        source.write_text(text)
        subprocess.run(["cc", *strict, f"-I{_PLUGIN}", str(source), "-o", str(path)], check=True)
        return path.read_bytes()


Change = Callable[[str], str]
"""Changes the text of a configuration."""


@contextmanager
def mosquitto(
    fleet: TlsFleet,
    folder: Path,
    change: Change = str,
    enrolment: Change = str,
    limits: ProcessLimits = ENROLMENT_PROCESS,
    plugin: Path | None = None,
) -> Iterator[ChildProcess]:
    """Run the fleet's two brokers with their configurations, changed; yield the first."""
    folder.mkdir(exist_ok=True)
    text = secured_configuration(fleet.port, fleet.files, bind=LOOPBACK, user=USER, plugin=plugin)
    own = enrolment_configuration(fleet.port, fleet.files, bind=LOOPBACK, user=USER)
    with ExitStack() as stack:
        first, _ = (
            stack.enter_context(_running(folder / name, made, address, most))
            for name, made, address, most in (
                ("fleet", change(text), fleet.address.for_commands(), NO_LIMITS),
                ("enrolment", enrolment(own), fleet.address.for_enrolment(), limits),
            )
        )
        yield first


@contextmanager
def _running(
    folder: Path, text: str, address: Address, limits: ProcessLimits
) -> Iterator[ChildProcess]:
    folder.mkdir(exist_ok=True)
    (folder / "mosquitto.conf").write_text(text)
    command = [str(find_mosquitto()), "-c", str(folder / "mosquitto.conf")]
    child = ChildProcess(command, folder=folder, log=folder / "mosquitto.log", limits=limits)
    try:
        wait_until_accepting(child, address)  # its last listener
        yield child
    finally:
        child.stop()


def reload(child: ChildProcess) -> None:
    os.kill(child.pid, signal.SIGHUP)


class TlsClient:
    """A plain MQTT client with or without a certificate; it does not reconnect.

    Attributes:
        answer: what the broker said to the connection; empty when TLS already failed.
        ended: set when the connection is over.
    """

    def __init__(
        self,
        fleet: TlsFleet,
        credentials: Credentials | None,
        address: Address,
        client_id: str | None = None,
        *,
        user: str = "",
        password: str | None = None,
        version: MQTTProtocolVersion = MQTTProtocolVersion.MQTTv311,
        will: tuple[str, bytes] | None = None,
    ) -> None:
        self.messages: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self.ended = threading.Event()
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._granted: queue.SimpleQueue[list[bool]] = queue.SimpleQueue()
        chosen = CLIENT_ID_PREFIX + secrets.token_hex(16) if client_id is None else client_id
        self.client = Client(
            CallbackAPIVersion.VERSION2, chosen, protocol=version, reconnect_on_failure=False
        )
        self.client.tls_set_context(tls_context(fleet, credentials))
        if user:
            self.client.username_pw_set(user, password)
        if will is not None:
            self.client.will_set(*will, qos=1)
        self.client.on_connect = lambda *arguments: self._answers.put(str(arguments[3]))
        self.client.on_disconnect = lambda *_: self._end()
        self.client.on_message = self._take
        self.client.on_subscribe = lambda *answer: self._granted.put(
            [not code.is_failure for code in answer[3]]
        )
        try:
            self.client.connect(address.host, address.port, keepalive=60)
        except OSError:
            self._end()
        else:
            self.client.loop_start()
        self.answer = self._answers.get(timeout=PATIENCE)

    def subscribe(self, *filters: str) -> list[bool]:
        """Subscribe in one packet; return which subscriptions were granted."""
        self.client.subscribe([(each, 1) for each in filters])
        return self._granted.get(timeout=PATIENCE)

    def publish(self, topic: str, payload: bytes, **options: Any) -> None:
        """Publish with QoS 1 and wait for the broker's acknowledgement."""
        self.client.publish(topic, payload, qos=1, **options).wait_for_publish(PATIENCE)

    def receive(self) -> tuple[str, bytes]:
        return self.messages.get(timeout=PATIENCE)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def _take(self, client: Client, data: object, message: MQTTMessage) -> None:
        del client, data
        self.messages.put((message.topic, bytes(message.payload)))

    def _end(self) -> None:
        self.ended.set()
        self._answers.put("")


@contextmanager
def client(
    fleet: TlsFleet, user: str, client_id: str | None = None, **options: Any
) -> Iterator[TlsClient]:
    """Connect as a party of the fleet, where its program does."""
    several = "." in user
    address = fleet.address.for_commands() if several else fleet.address
    made = TlsClient(fleet, fleet.parties[user], address, client_id, **options)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def stranger(
    fleet: TlsFleet, client_id: str | None = None, *, offset: int = 1, **options: Any
) -> Iterator[TlsClient]:
    """Connect without a certificate, to the listener for enrolment if nothing else is said."""
    address = Address(LOOPBACK, fleet.port + offset, tls=True)
    made = TlsClient(fleet, None, address, client_id, **options)
    try:
        yield made
    finally:
        made.close()


def tls_context(fleet: TlsFleet, credentials: Credentials | None) -> ssl.SSLContext:
    """Return the context of a client that trusts the fleet's authority."""
    if credentials is not None:
        return credentials.tls_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=fleet.authority.pem().decode())
    return context
