from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from broker.acl import acl
from broker.address import LOOPBACK, free_ports
from broker.child_process import ChildProcess
from broker.listeners import ENROLMENT
from broker.secured_configuration import secured_configuration
from broker.secured_files import SecuredFiles, version_of
from edgefed.errors import UsageError
from edgefed.trust.certificates import Role
from edgefed.trust.enrolment_login import ensure_login
from edgefed.wire.limits import MAX_PACKET_BYTES
from edgefed.wire.topics import Topics
from tests.broker.clients import PATIENCE, until
from tests.broker.tls_fleet import (
    FLEET,
    TlsClient,
    TlsFleet,
    client,
    make_fleet,
    mosquitto,
    reload,
    stranger,
)
from tests.docs.pages import ROOT

LAB = Topics(FLEET)
LEAVES = (
    *("birth", "progress", "telemetry", "reply", "need", "c", "renewal", "leave", "ping", "log"),
    *("model", "update", "gateway", "site"),
)
"""What a device may write below its name."""
PARTIES: tuple[tuple[Role, str], ...] = (
    ("device", "cam-1"),
    ("device", "cam-2"),
    ("operator", "al"),
    ("viewer", "vi"),
)


@pytest.fixture
def fleet(tmp_path: Path) -> TlsFleet:
    return make_fleet(tmp_path / "state", free_ports(), PARTIES)


@pytest.fixture
def broker(fleet: TlsFleet, tmp_path: Path) -> Iterator[ChildProcess]:
    with mosquitto(fleet, tmp_path / "broker") as child:
        yield child


def test_the_rules_name_every_user_and_no_pattern_of_users() -> None:
    text = acl(FLEET, ["cam-2", "coordinator", "cam-1", "operator.al", "cam-1"])
    users = [line.split()[1] for line in text.splitlines() if line.startswith("user ")]
    assert users == ["cam-1", "cam-2", "coordinator", "operator.al"]
    assert "%u" not in text
    assert "readwrite edgefed/lab/#" not in text
    before = text.split("user ")[0]
    assert "topic" not in before  # rules before the first user are those of clients without one


def test_only_own_topics_are_a_devices() -> None:
    text = acl(FLEET, ["cam-1"]).split("user cam-1\n")[1]
    assert text.splitlines() == [
        *(f"topic write edgefed/lab/up/cam-1/{leaf}" for leaf in LEAVES),
        "topic read edgefed/lab/up/cam-1/birth",
        "topic read edgefed/lab/up/cam-1/gateway",
        "topic read edgefed/lab/down/cam-1/#",
        "topic read edgefed/lab/all/#",
    ]


def test_only_own_requests_are_an_operators_and_a_viewers() -> None:
    for user in ("operator.al", "viewer.vi"):
        assert acl(FLEET, [user]).split(f"user {user}\n")[1].splitlines() == [
            *(f"topic write edgefed/lab/control/{user}/{slot}/request" for slot in range(16)),
            *(f"topic write edgefed/lab/check/{user}/{slot}" for slot in range(16)),
            f"topic read edgefed/lab/control/{user}/+/response",
            "topic read edgefed/lab/events",
            "topic read edgefed/lab/all/coordinator",
            f"topic read edgefed/lab/check/{user}/+",
        ]


def test_the_rules_to_deploy_are_those_that_are_generated() -> None:
    deployed = (ROOT / "deploy" / "edgefed.acl").read_text(encoding="utf-8")
    assert deployed == acl("default", ["cam-1", "coordinator", "operator.admin", "viewer.hall"])


def test_a_path_cannot_smuggle_in_an_option(tmp_path: Path) -> None:
    files = SecuredFiles(tmp_path / "a\nallow_anonymous true", tmp_path)
    with pytest.raises(UsageError) as caught:
        secured_configuration(8883, files)
    assert caught.value.code == "broker.path"


def test_a_missing_file_is_named(fleet: TlsFleet) -> None:
    fleet.files.require()
    assert version_of(fleet.files.of_fleet())
    fleet.files.acl.unlink()
    with pytest.raises(UsageError, match="acl is missing") as caught:
        fleet.files.require()
    assert caught.value.code == "broker.files"
    assert version_of(fleet.files.of_fleet()) is None


@pytest.mark.mosquitto
@pytest.mark.usefixtures("broker")
def test_only_certificates_of_the_fleet_open_the_listeners(fleet: TlsFleet, tmp_path: Path) -> None:
    other = make_fleet(tmp_path / "other", fleet.port, [("device", "cam-1")])
    foreign = other.parties["cam-1"]
    fleet.parties["foreign"] = foreign.__class__(
        foreign.folder, foreign.keys, foreign.certificate, fleet.authority, FLEET, ""
    )
    for offset in (0, 2):
        with stranger(fleet, offset=offset) as nobody:
            assert nobody.answer == ""
    with client(fleet, "foreign") as wrong:
        assert wrong.answer == ""
    with client(fleet, "cam-1") as right:
        assert right.answer == "Success"


@pytest.mark.mosquitto
@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("offset", [0, 1, 2])
def test_plain_mqtt_is_refused(fleet: TlsFleet, offset: int) -> None:
    connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04cam1"
    with socket.create_connection((LOOPBACK, fleet.port + offset), PATIENCE) as plain:
        plain.sendall(connect)
        assert not answered(plain).startswith(b"\x20")


def answered(connection: socket.socket) -> bytes:
    """What comes over a connection before its end; nothing when it is cut."""
    connection.settimeout(PATIENCE)
    try:
        return connection.recv(100)
    except ConnectionError:
        return b""


@pytest.mark.mosquitto
@pytest.mark.usefixtures("broker")
def test_the_rules_keep_the_parties_apart(fleet: TlsFleet) -> None:
    with (
        client(fleet, "coordinator") as coordinator,
        client(fleet, "cam-1") as first,
        client(fleet, "operator.al") as operator,
        client(fleet, "viewer.vi") as viewer,
    ):
        coordinator.subscribe(f"{LAB.root}/#")
        for each in (first, operator, viewer):
            each.subscribe("#", "$SYS/#")
        forbidden = {
            first: [LAB.birth("cam-2"), LAB.coordinator(), LAB.task("cam-1"), LAB.events()],
            operator: [LAB.birth("cam-1"), LAB.task("cam-1"), LAB.coordinator(), LAB.events()],
            viewer: [f"{LAB.root}/control/operator.al/0/request", LAB.reply("cam-1")],
        }
        forbidden[operator] += [f"{LAB.root}/control/viewer.vi/0/request"]
        forbidden[first] += [f"{LAB.root}/control/cam-1/0/request"]
        for who, topics in forbidden.items():
            for topic in topics:
                who.publish(topic, b"forged")
        first.publish(LAB.birth("cam-1"), b"mine")
        assert coordinator.receive() == (LAB.birth("cam-1"), b"mine")
        assert first.receive() == (LAB.birth("cam-1"), b"mine")
        for who, user in ((operator, "operator.al"), (viewer, "viewer.vi")):
            who.publish(f"{LAB.root}/control/{user}/0/request", b"ask")
            assert coordinator.receive() == (f"{LAB.root}/control/{user}/0/request", b"ask")
        coordinator.publish(LAB.task("cam-2"), b"for the second")
        coordinator.publish(f"{LAB.root}/control/operator.al/0/response", b"answer")
        coordinator.publish(LAB.events(), b"event")
        coordinator.publish(LAB.task("cam-1"), b"for the first")
        assert first.receive() == (LAB.task("cam-1"), b"for the first")
        assert operator.receive() == (f"{LAB.root}/control/operator.al/0/response", b"answer")
        assert operator.receive() == (LAB.events(), b"event")
        assert viewer.receive() == (LAB.events(), b"event")


@pytest.mark.mosquitto
@pytest.mark.usefixtures("broker")
def test_nobody_takes_the_connection_of_another_over(fleet: TlsFleet) -> None:
    with client(fleet, "cam-1") as victim, client(fleet, "operator.al", "client.one") as operator:
        for theirs in ("cam-1", "client.cam-1", "coordinator"):
            with client(fleet, "cam-2", theirs):
                pass
            with stranger(fleet, theirs):
                pass
            with client(fleet, "viewer.vi", theirs):
                pass
        with client(fleet, "operator.al", "client.two") as again:
            assert again.answer == "Success"
        victim.subscribe(LAB.task("cam-1"))
        assert not victim.ended.is_set()
        assert not operator.ended.is_set()
        with client(fleet, "cam-1") as newer:  # of the same certificate, one is left
            assert newer.answer == "Success"
            assert victim.ended.wait(PATIENCE)


@pytest.mark.mosquitto
@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
def test_without_a_certificate_only_ones_own_enrolment_is_reached(
    fleet: TlsFleet, version: MQTTProtocolVersion
) -> None:
    root = f"{LAB.root}/enrol"
    password = ensure_login(fleet.trust)
    with (
        client(fleet, "coordinator") as fleets,
        stranger(fleet, user="coordinator", password=password) as coordinator,
    ):
        for each in (fleets, coordinator):
            each.subscribe("#", f"{LAB.root}/#")
        for user in ("coordinator", "cam-1", "operator.al"):
            for wrong in (None, "", password[:-1]):
                with stranger(fleet, user=user, password=wrong, version=version) as liar:
                    assert liar.answer == "Not authorized"
        with stranger(fleet, "client.a", version=version) as nobody:
            assert nobody.answer == "Success"
            nobody.subscribe("#", f"{root}/+/response", "$SYS/#")
            nobody.publish(LAB.birth("cam-1"), b"forged")
            nobody.publish(f"{root}/client.b/request", b"forged")
            nobody.publish(f"{root}/client.a/request", b"ask")
            assert coordinator.receive() == (f"{root}/client.a/request", b"ask")
            coordinator.publish(f"{root}/client.b/response", b"another's")
            fleets.publish(f"{root}/client.a/response", b"of another broker")
            coordinator.publish(f"{root}/client.a/response", b"mine")
            assert nobody.receive() == (f"{root}/client.a/response", b"mine")
        with stranger(fleet, "client.+", version=version) as wild:
            wild.publish(f"{root}/client.c/request", b"forged")
            wild.subscribe(f"{root}/+/response")
            coordinator.publish(f"{root}/client.c/response", b"another's")
            wild.subscribe(f"{root}/client.c/request")  # confirmed after what was delivered
            assert wild.messages.empty()
        with stranger(fleet, "client.d", version=version) as late:
            late.publish(f"{root}/client.d/request", b"the last")
            assert coordinator.receive() == (f"{root}/client.d/request", b"the last")
        fleets.publish(LAB.coordinator(), b"the last")
        assert fleets.receive() == (LAB.coordinator(), b"the last")


@pytest.mark.mosquitto
@pytest.mark.usefixtures("broker")
def test_enrolment_retains_nothing(fleet: TlsFleet) -> None:
    topic = f"{LAB.root}/enrol/client.a/request"
    with stranger(fleet, "client.a") as nobody:
        nobody.client.publish(topic, b"kept", qos=1, retain=True)
        assert nobody.ended.wait(PATIENCE)


@pytest.mark.mosquitto
@pytest.mark.usefixtures("broker")
def test_parties_retain_on_their_exact_topics_only_and_the_coordinator_clears_them(
    fleet: TlsFleet,
) -> None:
    own = {
        "cam-1": LAB.written_by_device("cam-1"),
        "operator.al": LAB.written_by_client("operator.al"),
        "viewer.vi": LAB.written_by_client("viewer.vi"),
    }
    for user, topics in own.items():
        with client(fleet, user) as party:
            for topic in topics:
                party.publish(topic, b"kept", retain=True)
                for other in (f"{topic}/more", f"{topic}x", topic.rpartition("/")[0]):
                    party.publish(other, b"more", retain=True)
    with client(fleet, "coordinator") as coordinator:
        readable = {topic for topic in sum(own.values(), ()) if "/check/" not in topic}
        coordinator.subscribe(f"{LAB.root}/up/#", f"{LAB.root}/control/#")
        assert {coordinator.receive() for _ in readable} == {(each, b"kept") for each in readable}
        for topic in sum(own.values(), ()):
            coordinator.publish(topic, b"", retain=True)
    for user in own:
        with client(fleet, user) as party:
            party.subscribe("#")
            assert party.messages.empty()
    with client(fleet, "coordinator") as again:
        again.subscribe(f"{LAB.root}/#")
        assert again.messages.empty()


@pytest.mark.mosquitto
def test_a_removed_device_is_cut_off_while_connected(fleet: TlsFleet, broker: ChildProcess) -> None:
    stolen = fleet.parties["cam-2"]
    with (
        client(fleet, "coordinator") as coordinator,
        client(fleet, "cam-1") as kept,
        client(fleet, "cam-2", will=(LAB.birth("cam-2"), b"will")) as removed,
    ):
        coordinator.subscribe(f"{LAB.root}/up/#")
        removed.subscribe(LAB.every_down("cam-2"), LAB.coordinator())
        fleet.remove("cam-2")
        reload(broker)
        fleet.parties["cam-2"] = stolen
        assert until(lambda: is_refused(fleet))
        removed.publish(LAB.reply("cam-2"), b"too late")
        coordinator.publish(LAB.task("cam-2"), b"secret")
        coordinator.publish(LAB.coordinator(), b"secret")
        kept.publish(LAB.reply("cam-1"), b"still here")
        assert coordinator.receive() == (LAB.reply("cam-1"), b"still here")
        if not removed.ended.is_set():
            removed.subscribe(LAB.task("cam-2"))  # confirmed after what was delivered
        assert removed.messages.empty()
        assert not kept.ended.is_set()


def is_refused(fleet: TlsFleet) -> bool:
    """Whether the certificate of cam-2 opens no connection, not even beside an older one."""
    beside = TlsClient(fleet, fleet.parties["cam-2"], fleet.address.for_commands())
    beside.close()
    return beside.answer == ""


@pytest.mark.mosquitto
@pytest.mark.usefixtures("broker")
def test_a_packet_above_the_limit_ends_the_connection(fleet: TlsFleet) -> None:
    with client(fleet, "cam-1") as device, stranger(fleet) as nobody:
        for each in (device, nobody):
            each.client.publish(LAB.reply("cam-1"), bytes(MAX_PACKET_BYTES + 1), qos=1)
            assert each.ended.wait(PATIENCE)


@pytest.mark.mosquitto
@pytest.mark.usefixtures("broker")
def test_enrolment_has_few_connections_and_the_others_stay_free(fleet: TlsFleet) -> None:
    enrolment = (LOOPBACK, fleet.port + 1)
    many = range(ENROLMENT.max_connections)
    held = [socket.create_connection(enrolment, PATIENCE) for _ in many]
    try:
        with client(fleet, "cam-1") as device:
            assert device.answer == "Success"
        # Mosquitto counts the end of a connection twice, as of those that looked whether it is up.
        late = [socket.create_connection(enrolment, PATIENCE) for _ in range(8)]
        held += late
        ended, _, _ = select.select(late, [], [], PATIENCE)
        assert ended
        assert {answered(each) for each in ended} == {b""}
    finally:
        for each in held:
            each.close()
