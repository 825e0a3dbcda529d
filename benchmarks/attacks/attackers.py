"""What attackers do to a fleet's broker until they are killed; each runs in a process of its own.

    python -m benchmarks.attacks.attackers NAME TARGET

``NAME`` is one of ``ATTACKS``, or ``busy`` for a process that only computes.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from benchmarks.attacks.raw_client import RawClient, publish, subscribe
from edgefed.config.values.address import Address
from edgefed.trust.credentials import Credentials, load_credentials
from edgefed.trust.signatures import Signer
from edgefed.wire.envelope import encode
from edgefed.wire.messages import Request
from edgefed.wire.topics import CLIENT_ID_PREFIX, CLIENT_SLOTS, Topics

Who = Literal["stranger", "device", "viewer"]

RETAINED_BYTES = 250_000
RETAINED = 4_300
"""Retained messages of so many bytes: together 1.07 GB, more than the broker's memory limit."""

SUBSCRIBE_BYTES = 3_000_000
"""Bytes of SUBSCRIBE packets on one connection, and how many each packet has."""
PACKET_BYTES = 200_000

PAUSE = 0.01
"""Seconds before another try where the broker admits nobody."""


@dataclass(frozen=True)
class Target:
    """The fleet that is attacked.

    Attributes:
        port: of the broker's listener for devices, on loopback.
        fleet: its name.
        device, viewer: folders of the attacker's credentials.
        devices: names of the fleet's devices.
    """

    port: int
    fleet: str
    device: str
    viewer: str
    devices: tuple[str, ...]

    def text(self) -> str:
        """Return the target as an argument of this module."""
        return json.dumps(asdict(self))

    @property
    def topics(self) -> Topics:
        """The fleet's topics."""
        return Topics(self.fleet)

    @property
    def state(self) -> Path:
        """The state folder of the attacker's agent."""
        return Path(self.device).parents[2]

    @property
    def data(self) -> Path:
        """The data of one of the fleet's devices."""
        return self.state.parents[1] / f"{self.devices[0]}.npz"

    def credentials(self, who: Who) -> Credentials:
        """Return what an attacker has; a stranger only the authority's certificate."""
        folder = Path(self.viewer if who == "viewer" else self.device)
        return load_credentials(folder, datetime.now(timezone.utc))

    def connect(self, who: Who, client_id: str = "") -> RawClient:
        """Connect where such a party may.

        Raises:
            OSError: the broker does not admit it.
        """
        address = Address("127.0.0.1", self.port, tls=True)
        client_id = client_id or CLIENT_ID_PREFIX + secrets.token_hex(8)
        own = self.credentials(who)
        if who == "stranger":
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            tls.load_verify_locations(cadata=own.authority.pem().decode())
            return RawClient(address.for_enrolment(), tls, client_id)
        if who == "viewer":
            return RawClient(address.for_commands(), own.tls_context(), client_id)
        return RawClient(address, own.tls_context(), client_id)


Attack = Callable[[Target], None]
"""Attacks for ever, or until there is nothing more to do."""


def _retain_as_stranger(target: Target) -> None:
    """Fill the broker with retained messages, one on the topic of each client id."""
    payload = secrets.token_bytes(RETAINED_BYTES)
    for number in itertools.count():
        client_id = f"{CLIENT_ID_PREFIX}{number % RETAINED:x}"
        topic = f"{target.topics.root}/enrol/{client_id}/request"
        _send(target, "stranger", iter([publish(topic, payload, retain=True)]), client_id)


def _retain_as_device(target: Target) -> None:
    """Fill the broker with retained messages below the topics of one device."""
    name = target.credentials("device").certificate.user
    up = f"{target.topics.root}/up/{name}"
    _retain(target, "device", [f"{up}/c/{n:064x}/0" for n in range(RETAINED)])


def _retain_as_viewer(target: Target) -> None:
    """Fill the broker with retained messages below the topics of one viewer."""
    user, root = target.credentials("viewer").certificate.user, target.topics.root
    topics = [f"{root}/check/{user}/{n:x}" for n in range(RETAINED // 2)]
    topics += [f"{root}/control/{user}/c-{n:x}/request" for n in range(RETAINED // 2)]
    _retain(target, "viewer", topics)


def _retain(target: Target, who: Who, topics: list[str]) -> None:
    payload = secrets.token_bytes(RETAINED_BYTES)
    while True:
        _send(target, who, (publish(each, payload, retain=True) for each in topics))


def _subscribe(who: Who) -> Attack:
    """Freeze the broker with subscriptions, which it looks through one by one for each new one."""

    def attack(target: Target) -> None:
        while True:
            _send(target, who, _subscriptions(f"{number:x}" for number in itertools.count()))

    return attack


def _subscribe_to_all(who: Who) -> Attack:
    """Have the broker look through all retained messages, for each of a packet's filters."""

    def attack(target: Target) -> None:
        _retain_own(target, who)
        while True:
            _send(target, who, _subscriptions(itertools.repeat("#")))

    return attack


def _subscribe_to_own(who: Who) -> Attack:
    """Have the broker send the largest message that a party can leave with it, again and again."""

    def attack(target: Target) -> None:
        own = _retain_own(target, who)
        while True:
            _send(target, who, _subscriptions(itertools.repeat(own)))

    return attack


def _retain_own(target: Target, who: Who) -> str:
    """Retain on each topic that a party may write; return one that it may read, too."""
    user, topics = target.credentials(who).certificate.user, target.topics
    device = who == "device"
    own = topics.written_by_device(user) if device else topics.written_by_client(user)
    payload = secrets.token_bytes(RETAINED_BYTES)
    _send(target, who, (publish(each, payload, retain=True) for each in own))
    return topics.birth(user) if device else topics.check(user, 0)


def _ask_as_viewer(target: Target) -> None:
    """Ask the coordinator as fast as the broker takes it, from every client that a viewer has."""
    own = target.credentials("viewer")
    user, signer = own.certificate.user, Signer(own)
    clients = [f"{user}/{slot}" for slot in range(CLIENT_SLOTS)]
    responses = subscribe(target.topics.response(client) for client in clients)
    while True:
        _send(target, "viewer", itertools.chain([responses], _questions(target, clients, signer)))


def _questions(target: Target, clients: list[str], signer: Signer) -> Iterator[bytes]:
    """Yield questions under ever new nonces."""
    actions = itertools.cycle(("snapshot", "run.list", "challenge"))
    for client in itertools.cycle(clients):
        topic = target.topics.request(client)
        request = Request(nonce=secrets.token_hex(8), action=next(actions))
        yield publish(topic, encode(request, topic, signer), retain=False)


def _connect_as_stranger(target: Target) -> None:
    """Open and close connections, more than the listener for enrolment admits at one time."""
    while True:
        clients: list[RawClient] = []
        for _ in range(72):
            with suppress(OSError):
                clients.append(target.connect("stranger"))
        for client in clients:
            client.close()


def _subscriptions(names: Iterator[str]) -> Iterator[bytes]:
    """Yield packets with filters."""
    for _ in range(SUBSCRIBE_BYTES // PACKET_BYTES):
        filters, size = [], 0
        while size < PACKET_BYTES:
            filters.append(next(names))
            size += len(filters[-1]) + 3
        yield subscribe(filters)


def _send(target: Target, who: Who, packets: Iterator[bytes], client_id: str = "") -> None:
    """Send packets over a new connection, until the broker ends it."""
    try:
        client = target.connect(who, client_id)
    except OSError:
        time.sleep(PAUSE)
        return
    try:
        for each in packets:
            client.send(each)
    except OSError:
        time.sleep(PAUSE)
    finally:
        client.close()


def _say_nothing(target: Target) -> None:
    """Take tasks as a device and never answer."""
    from benchmarks.attacks.lying_agent import run_silent

    run_silent(target.state, target.data)


def _announce(target: Target) -> None:
    """Announce 2^40 samples as a device, and train on wrong labels."""
    from benchmarks.attacks.lying_agent import run_greedy

    run_greedy(target.state, target.data)


def _compute(target: Target) -> None:
    """Keep a processor busy, as an attacker does."""
    del target
    while True:
        sum(range(10_000))


BUSY = "busy"

ATTACKS: dict[str, Attack] = {
    "stranger-retains": _retain_as_stranger,
    "stranger-subscribes": _subscribe("stranger"),
    "stranger-connects": _connect_as_stranger,
    "device-retains": _retain_as_device,
    "device-subscribes": _subscribe("device"),
    "device-subscribes-all": _subscribe_to_all("device"),
    "device-subscribes-own": _subscribe_to_own("device"),
    "viewer-retains": _retain_as_viewer,
    "viewer-subscribes": _subscribe("viewer"),
    "viewer-subscribes-all": _subscribe_to_all("viewer"),
    "viewer-subscribes-own": _subscribe_to_own("viewer"),
    "viewer-asks": _ask_as_viewer,
    "device-silent": _say_nothing,
    "device-announces": _announce,
}
"""By name: who attacks, and how."""

JOINING = frozenset({"device-silent", "device-announces"})
"""Those whose attacker is a device of the fleet, from before the run on."""

DEADLINES: dict[str, float] = {"device-silent": 10.0}
"""Seconds that a round may take, where it is not what nobody waits for."""


def main() -> None:
    """Attack, at the lowest priority."""
    os.nice(19)
    name, described = sys.argv[1:]
    fields = json.loads(described)
    target = Target(**{**fields, "devices": tuple(fields["devices"])})
    {BUSY: _compute, **ATTACKS}[name](target)


if __name__ == "__main__":
    main()
