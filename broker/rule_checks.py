"""The rules of a secured broker, each tested on the running one by a forbidden action.

Forbidden messages have random contents, which every program refuses, in case a rule does not hold.
A dropped message is detected without a timeout: the broker keeps the order, so that when a later
message has arrived, an earlier one that was forwarded has arrived too.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from broker.address import connect_host
from broker.listeners import COMMANDS, DEVICES, ENROLMENT, LISTENERS
from broker.probe import Probe
from broker.secured_check import SecuredCheck
from broker.secured_configuration import ENROLMENT_OPEN_FILES
from edgefed.config.values.address import Address
from edgefed.errors import EdgeFedError
from edgefed.trust.credentials import Credentials, save_credentials
from edgefed.trust.enrolment_login import COORDINATOR_USER
from edgefed.trust.issuing import issue, make_authority, new_keys
from edgefed.wire.topics import CLIENT_ID_PREFIX, CLIENT_SLOTS

Outcome = Literal["holds", "broken", "not tried"]

_CONNECT = b"\x10\x17\x00\x04MQTT\x04\x02\x00\x3c\x00\x0bclient.%04d"
_CONNACK = b"\x20"

MORE_CONNECTIONS = 40
"""Connections to enrolment that are opened beyond those that it admits, after as many have ended:
Mosquitto 2.0 then admits 72 where ``max_connections`` says 32."""

MORE_SUBSCRIPTIONS = 100
"""Subscriptions to one's own topic in one packet, of which the broker grants 64."""

_PROBE_LIFE = timedelta(minutes=10)


@dataclass(frozen=True)
class RuleReport:
    """The result for one rule.

    Attributes:
        name: stable name of the rule.
        rule: the rule, as a sentence.
        outcome: whether it does.
        observation: the observation where it is broken, or the reason why it was not tried.
    """

    name: str
    rule: str
    outcome: Outcome
    observation: str = ""


@dataclass(frozen=True)
class _Rule:
    name: str
    text: str
    try_it: Callable[[SecuredCheck], str]
    """Returns the violation of the rule; empty when it holds."""
    needs_parties: bool = False


def try_rules(check: SecuredCheck) -> list[RuleReport]:
    """Try every rule, in an order in which none disturbs the next.

    Raises:
        UnreachableError: there is no answer.
        NotAllowedError: the broker does not accept the checking party.
    """
    check.connect(check.own, COMMANDS).close()
    return [_report(check, rule) for rule in RULES]


def _report(check: SecuredCheck, rule: _Rule) -> RuleReport:
    if rule.needs_parties and not check.has_parties:
        why = "it takes a device's certificate, and the fleet's authority is on another machine"
        return RuleReport(rule.name, rule.text, "not tried", why)
    try:
        problem = rule.try_it(check)
    except EdgeFedError as error:
        problem = f"it could not be tried: {error.message}"  # and what is not proved does not hold
    return RuleReport(rule.name, rule.text, "broken" if problem else "holds", problem)


def _plain(check: SecuredCheck) -> str:
    for listener in LISTENERS:
        at = check.at(listener)
        with (
            suppress(OSError),
            socket.create_connection((connect_host(at), at.port), check.timeout) as plain,
        ):
            plain.settimeout(check.timeout)
            plain.sendall(_CONNECT % 0)
            if plain.recv(1) == _CONNACK:
                return f"port {at.port} answers without TLS"
    return ""


def _old_tls(check: SecuredCheck) -> str:
    for listener in LISTENERS:
        context = check.own.tls_context()
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        if check.is_admitted(listener, check.own, tls=context):
            return f"port {check.at(listener).port} accepts TLS 1.2"
    return ""


def _no_certificate(check: SecuredCheck) -> str:
    for listener in LISTENERS:
        if listener.certificate and check.is_admitted(listener, None):
            return f"port {check.at(listener).port} accepts a client without a certificate"
    return ""


def _other_authority(check: SecuredCheck) -> str:
    with tempfile.TemporaryDirectory() as folder:
        foreign = _foreign(check, Path(folder))
        for listener in LISTENERS:
            if listener.certificate and check.is_admitted(listener, foreign):
                return f"port {check.at(listener).port} accepts another authority's certificate"
    return ""


def _foreign(check: SecuredCheck, folder: Path) -> Credentials:
    """Return credentials of the coordinator of a fleet of the same name, made up here."""
    key, keys, fleet = Ed25519PrivateKey.generate(), new_keys(), check.own.fleet
    authority = make_authority(key, fleet, check.now, _PROBE_LIFE)
    certificate = issue(
        authority,
        key,
        role="coordinator",
        signing_key=keys.signing.public_key(),
        encryption_key=keys.encryption.public_key(),
        now=check.now,
        life=_PROBE_LIFE,
    )
    # It trusts the real authority, so that only the broker refuses.
    made = Credentials(folder / "made", keys, certificate, check.own.authority, fleet, "")
    return save_credentials(made)


def _claimed_user(check: SecuredCheck) -> str:
    for user in (COORDINATOR_USER, check.own.certificate.user):
        if check.is_admitted(ENROLMENT, None, user=user):
            return f"the listener for enrolment admits anybody as {user}"
    return ""


def _enrolment(check: SecuredCheck) -> str:
    own, payload = check.own_check_topic(), secrets.token_bytes(16)
    names = [CLIENT_ID_PREFIX + secrets.token_hex(16) for _ in range(2)]
    with (
        closing(check.connect(None, ENROLMENT, names[0])) as nobody,
        closing(check.connect(None, ENROLMENT, names[1])) as other,
        closing(check.connect(check.own, COMMANDS)) as witness,
    ):
        for pattern in (check.topics.events(), own):
            witness.subscribe(pattern)
        for pattern in ("#", "$SYS/#", f"{check.root}/enrol/#", f"{check.root}/enrol/+/response"):
            nobody.subscribe(pattern)
        witness.flush(own, payload)
        other.flush(f"{check.root}/enrol/{names[0]}/response", payload)
        other.flush(f"{check.root}/enrol/{names[1]}/request", b"")
        for topic in (check.topics.events(), check.topics.coordinator()):
            other.flush(topic, payload)
        nobody.subscribe(own)  # its answer comes after everything else
        if nobody.heard():
            return "a client without a certificate reads other topics than its own"
        if not witness.receives(own, payload):
            return "what may be published does not arrive"
        if witness.heard():
            return "a client without a certificate writes other topics than its own"
    return ""


def _retains(check: SecuredCheck) -> str:
    name = CLIENT_ID_PREFIX + secrets.token_hex(16)
    topic = f"{check.root}/enrol/{name}/request"
    with closing(check.connect(None, ENROLMENT, name)) as nobody:
        if not nobody.is_cut_by(topic, b"", retain=True):
            return "the broker for enrolment takes retained messages"
    return ""


def _connections(check: SecuredCheck) -> str:
    """Open connections after others have ended, and count how many there are at one time."""
    most = ENROLMENT_OPEN_FILES
    _open(check, ENROLMENT.max_connections + MORE_CONNECTIONS)
    count = _open(check, ENROLMENT.max_connections + MORE_CONNECTIONS)
    if count > most:
        at = check.at(ENROLMENT)
        return (
            f"port {at.port} admits {count} connections at one time: start its broker with at most "
            f"{most} open files (LimitNOFILE={most})"
        )
    return ""


def _open(check: SecuredCheck, count: int) -> int:
    """Return how many of so many connections to enrolment are admitted; all are ended again."""
    at, context = check.at(ENROLMENT), check.anonymous()
    with ExitStack() as opened:
        return sum(_admits(opened, at, context, number, check.timeout) for number in range(count))


def _admits(
    opened: ExitStack, at: Address, context: ssl.SSLContext, number: int, timeout: float
) -> bool:
    """Open a connection, and leave it open; return whether the broker admits it."""
    host = connect_host(at)
    try:
        plain = opened.enter_context(socket.create_connection((host, at.port), timeout))
        secured = opened.enter_context(context.wrap_socket(plain, server_hostname=host))
        secured.sendall(_CONNECT % number)
        return secured.recv(1) == _CONNACK
    except OSError:
        return False


def _device_writes(check: SecuredCheck) -> str:
    first, second = check.parties.devices
    one, two = first.certificate.user, second.certificate.user
    topics, payload = check.topics, secrets.token_bytes(16)
    operator = f"{check.root}/control/{check.own.certificate.user}/0"
    targets = [topics.birth(two), topics.task(two), topics.coordinator(), topics.events()]
    targets += [topics.task(one), topics.broadcast_chunk("0" * 64), f"{operator}/response"]
    with (
        closing(check.connect(first, DEVICES)) as attacker,
        closing(check.connect(second, DEVICES)) as victim,
        closing(check.connect(check.own, COMMANDS)) as witness,
    ):
        attacker.subscribe(topics.every_down(one))
        for pattern in (topics.birth(two), topics.every_down(two), f"{check.root}/all/#"):
            victim.subscribe(pattern)
        for pattern in (topics.events(), f"{operator}/response"):
            witness.subscribe(pattern)
        for topic in targets:
            attacker.flush(topic, payload)
        if not _is_in_order(check, attacker, victim, witness):
            return "what the parties may publish does not arrive"
        for probe in (attacker, victim, witness):
            for topic, received, _ in probe.heard():
                if received == payload:
                    return f"a device wrote {topic}"
    return ""


def _is_in_order(check: SecuredCheck, attacker: Probe, victim: Probe, witness: Probe) -> bool:
    """Whether all have received everything that was forwarded to them until now."""
    first, second = check.parties.devices
    own = check.own_check_topic()
    births = [
        (attacker, check.topics.birth(first.certificate.user)),
        (victim, check.topics.birth(second.certificate.user)),
        (witness, own),
    ]
    return all(_echo(probe, topic) for probe, topic in births)


def _echo(probe: Probe, topic: str) -> bool:
    """Whether a message without a meaning comes back; ``heard`` returns earlier messages."""
    probe.subscribe(topic)
    probe.publish(topic, b"")
    return probe.receives(topic, b"")


def _device_reads(check: SecuredCheck) -> str:
    first, second = check.parties.devices
    one, two = first.certificate.user, second.certificate.user
    own = check.own_check_topic()
    with (
        closing(check.connect(first, DEVICES)) as attacker,
        closing(check.connect(second, DEVICES)) as victim,
        closing(check.connect(check.own, COMMANDS)) as operator,
    ):
        for pattern in ("#", "$SYS/#", f"{check.root}/up/#", check.topics.birth(two), own):
            attacker.subscribe(pattern)
        victim.flush(check.topics.birth(two), b"")
        operator.flush(own, b"")
        if not _echo(attacker, check.topics.birth(one)):
            return "what a device may publish does not arrive"
        allowed = (f"{check.root}/all/", f"{check.root}/down/{one}/", check.topics.birth(one))
        for topic, _, _ in attacker.heard():
            if not topic.startswith(allowed):
                return f"a device read {topic}"
    return ""


def _viewer_writes(check: SecuredCheck) -> str:
    viewer, (_, second) = check.parties.viewer, check.parties.devices
    two, payload = second.certificate.user, secrets.token_bytes(16)
    topics = check.topics
    with (
        closing(check.connect(viewer, COMMANDS)) as attacker,
        closing(check.connect(second, DEVICES)) as victim,
    ):
        for pattern in (topics.birth(two), topics.every_down(two), f"{check.root}/all/#"):
            victim.subscribe(pattern)
        for topic in (topics.birth(two), topics.task(two), topics.coordinator()):
            attacker.flush(topic, payload)
        if not _echo(victim, topics.birth(two)):
            return "what a device may publish does not arrive"
        for topic, received, _ in victim.heard():
            if received == payload:
                return f"a viewer wrote {topic}"
    return ""


def _viewer_reads(check: SecuredCheck) -> str:
    viewer, (_, second) = check.parties.viewer, check.parties.devices
    user, own = viewer.certificate.user, check.own_check_topic()
    topics, root, birth = check.topics, check.root, check.topics.birth(second.certificate.user)
    with (
        closing(check.connect(viewer, COMMANDS)) as attacker,
        closing(check.connect(second, DEVICES)) as victim,
        closing(check.connect(check.own, COMMANDS)) as operator,
    ):
        for pattern in ("#", "$SYS/#", f"{root}/up/#", f"{root}/control/#", birth, own):
            attacker.subscribe(pattern)
        victim.flush(birth, b"")
        operator.flush(own, b"")
        if not _echo(attacker, topics.check(user, secrets.randbelow(CLIENT_SLOTS))):
            return "what a viewer may publish does not arrive"
        allowed = (topics.events(), topics.coordinator())
        below = (f"{root}/control/{user}/", f"{root}/check/{user}/")
        for topic, _, _ in attacker.heard():
            if topic not in allowed and not topic.startswith(below):
                return f"a viewer read {topic}"
    return ""


def _subscriptions(check: SecuredCheck) -> str:
    """Subscribe to what is above the own level, and more often than any client does."""
    (device, other), viewer, root = check.parties.devices, check.parties.viewer, check.root
    for who, listener, branch in ((device, DEVICES, "down"), (viewer, COMMANDS, "control")):
        user, role = who.certificate.user, who.certificate.role
        own = f"{root}/{branch}/{user}/#"
        wide = ["#", "+/#", "$SYS/#", "$share/one/#", f"{root}/up/#", f"{root}/+/{user}/#"]
        wide += [check.topics.every_down(other.certificate.user)]
        with closing(check.connect(who, listener)) as probe:
            if not all(probe.subscribe(own)):
                return f"a {role} cannot subscribe to its own topics, {own}"
            granted = [*probe.subscribe(*wide), all(probe.subscribe(*[own] * MORE_SUBSCRIPTIONS))]
        for scope, broken in zip([*wide, "its own topics without end"], granted, strict=True):
            if broken:
                return (
                    f"a {role} may subscribe to {scope}, and freeze the broker: it does not ask "
                    "the plug-in for subscriptions; edgefed doctor tells whether that is built"
                )
    return ""


def _take_over(check: SecuredCheck) -> str:
    first, second = check.parties.devices
    name = first.certificate.user
    with closing(check.connect(first, DEVICES)) as victim:
        for claimed in (name, CLIENT_ID_PREFIX + name):
            for who, listener in ((second, DEVICES), (second, COMMANDS), (None, ENROLMENT)):
                check.is_admitted(listener, who, client_id=claimed)
        if not _still_works(victim, check.topics.birth(name)):
            return "a client with the name of a device as its client id ended its connection"
    return ""


def _still_works(probe: Probe, topic: str) -> bool:
    try:
        return _echo(probe, topic)
    except EdgeFedError:
        return False


def _one_connection(check: SecuredCheck) -> str:
    first, _ = check.parties.devices
    with closing(check.connect(first, DEVICES)) as older, closing(check.connect(first, DEVICES)):
        if not older.ends():
            return "a device's certificate has several connections at once"
    return ""


def _oversize(check: SecuredCheck) -> str:
    topic = check.own_check_topic()
    for who, listener in ((check.own, COMMANDS), (None, ENROLMENT)):
        with closing(check.connect(who, listener)) as probe:
            if not probe.is_cut_by(topic, bytes(listener.max_packet + 1)):
                return f"port {check.at(listener).port} takes packets of any size"
    return ""


def _removed(check: SecuredCheck) -> str:
    first, second = check.parties.devices
    one, two = first.certificate.user, second.certificate.user
    with (
        closing(check.connect(first, DEVICES)) as removed,
        closing(check.connect(second, DEVICES)) as kept,
    ):
        for pattern in (check.topics.birth(one), f"{check.root}/all/#"):
            removed.subscribe(pattern)
        if not _echo(removed, check.topics.birth(one)):
            return "what a device may publish does not arrive"
        check.parties.withdraw()
        if not _is_refused_soon(check, first):
            return "the broker still admits the certificate: it did not read its files again"
        removed.flush(check.topics.birth(one), b"removed")
        if not _echo(kept, check.topics.birth(two)):
            return "a device that stayed was cut off too"
        if removed.is_connected and any(payload == b"removed" for _, payload, _ in removed.heard()):
            return "a removed device still publishes over its old connection"
    return ""


def _is_refused_soon(check: SecuredCheck, who: Credentials) -> bool:
    """Whether the broker refuses a certificate within the time of an answer."""
    end = check.monotonic() + check.timeout
    while check.is_admitted(COMMANDS, who):
        if check.monotonic() > end:
            return False
    return True


RULES = (
    _Rule("tls", "no listener answers without TLS", _plain),
    _Rule("tls-version", "no listener accepts TLS before 1.3", _old_tls),
    _Rule("certificate", "a client without a certificate reaches enrolment only", _no_certificate),
    _Rule("authority", "a certificate of another authority is refused", _other_authority),
    _Rule("user", "nobody without a certificate can claim a user's name", _claimed_user),
    _Rule("enrolment", "enrolment reaches its own topics only", _enrolment),
    _Rule("retained", "enrolment retains no message", _retains),
    _Rule("connections", "connections to enrolment are limited", _connections),
    _Rule("packet-size", "a packet above the limit ends the connection", _oversize),
    _Rule("device-write", "a device writes only its own topics", _device_writes, True),
    _Rule("device-read", "a device reads only its own and the fleet's topics", _device_reads, True),
    _Rule("viewer", "a viewer writes no topic of devices or of the fleet", _viewer_writes, True),
    _Rule("viewer-read", "a viewer reads no topic of devices or of others", _viewer_reads, True),
    _Rule("subscriptions", "subscriptions are limited", _subscriptions, True),
    _Rule("take-over", "nobody takes a device's connection over", _take_over, True),
    _Rule("one-connection", "a device has one connection", _one_connection, True),
    _Rule("revocation", "a removed device is cut off at once", _removed, True),
)
"""In the order in which they are tried; the last one withdraws a probe's certificate."""
