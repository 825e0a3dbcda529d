"""What the plug-in for Mosquitto grants and refuses, tried with SUBSCRIBE packets over TLS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.address import free_ports
from broker.child_process import ChildProcess
from edgefed.wire.topics import Topics
from tests.broker.clients import until
from tests.broker.tls_fleet import (
    FLEET,
    TlsClient,
    TlsFleet,
    build_plugin,
    client,
    make_fleet,
    mosquitto,
    reload,
    stranger,
)

pytestmark = pytest.mark.mosquitto

LAB = Topics(FLEET)
ROOT = LAB.root
MOST = 2048
"""Subscriptions of a connection at one time; also how many broadcasts of blobs at once."""


@pytest.fixture
def fleet(tmp_path: Path) -> TlsFleet:
    parties = [("device", "cam-1"), ("device", "cam"), ("operator", "al"), ("viewer", "vi")]
    return make_fleet(tmp_path / "state", free_ports(), parties)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plugin(tmp_path_factory.mktemp("plugin"))


@pytest.fixture
def broker(fleet: TlsFleet, tmp_path: Path, plugin: Path) -> Iterator[ChildProcess]:
    def limited(text: str) -> str:
        return f"{text}\nplugin {plugin}\n"

    with mosquitto(fleet, tmp_path / "broker", enrolment=limited, plugin=plugin) as child:
        yield child


def broadcasts(first: int, count: int) -> list[str]:
    return [LAB.broadcast_chunk(f"{number:064x}") for number in range(first, first + count)]


def granted_in_all(party: TlsClient, filters: list[str]) -> int:
    """Subscribe in packets that the broker takes; return how many subscriptions it grants."""
    packets = (filters[start : start + 500] for start in range(0, len(filters), 500))
    return sum(sum(party.subscribe(*each)) for each in packets)


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("user", ["cam-1", "viewer.vi"])
def test_nobody_subscribes_above_the_own_level(fleet: TlsFleet, user: str) -> None:
    refused = [
        *("#", "+", "+/#", "/#", "+/+/+/+/#", f"{ROOT}/#", f"{ROOT}/+/{user}/#"),
        *(f"{ROOT}/{branch}/#" for branch in ("up", "down", "control", "check", "enrol")),
        *(f"{ROOT}/{branch}/+/birth" for branch in ("up", "down", "control")),
        *(f"edgefed/+/down/{user}/#", f"+/{FLEET}/down/{user}/task"),
        *("edgefed/+/all/#", "+/+/all/coordinator", f"{ROOT}/+/all/#"),
        *(f"{ROOT}/down/{who}/#" for who in ("cam", user + "x", user[:-1], user[:-1] + "2")),
        *("$SYS/#", "$SYS/broker/uptime", f"$share/a/{ROOT}/down/{user}/task", "$any"),
    ]
    with client(fleet, user) as party:
        assert dict(zip(refused, party.subscribe(*refused), strict=True)) == dict.fromkeys(
            refused, False
        )


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize("user", ["cam-1", "viewer.vi"])
def test_what_a_party_may_read_is_granted(fleet: TlsFleet, user: str) -> None:
    own = [
        *(f"{ROOT}/down/{user}/#", f"{ROOT}/up/{user}/birth", LAB.coordinator(), f"{ROOT}/all/#"),
        *(f"{ROOT}/control/{user}/+/response", f"{ROOT}/check/{user}/+", LAB.events()),
        *broadcasts(0, 2),
    ]
    with client(fleet, user) as party, client(fleet, "coordinator") as coordinator:
        assert party.subscribe(*own) == [True] * len(own)
        coordinator.publish(LAB.coordinator(), b"state")
        assert party.receive() == (LAB.coordinator(), b"state")  # access rules are still asked
        coordinator.publish(f"{ROOT}/all/c/{0:064x}", b"chunk")
        coordinator.publish(LAB.task("cam-1"), b"task")
        if user == "cam-1":
            assert [party.receive()[1] for _ in range(2)] == [b"chunk", b"task"]


@pytest.mark.usefixtures("broker")
def test_a_long_filter_is_refused(fleet: TlsFleet) -> None:
    longest = f"{ROOT}/all/".ljust(255, "x")
    with client(fleet, "cam-1") as device:
        assert device.subscribe(longest, longest + "x") == [True, False]


@pytest.mark.usefixtures("broker")
def test_the_coordinator_is_unlimited(fleet: TlsFleet) -> None:
    filters = ["#", "$SYS/#", f"{ROOT}/up/#", LAB.every_request()]
    with client(fleet, "coordinator") as coordinator:
        assert coordinator.subscribe(*filters) == [True] * len(filters)
        assert all(coordinator.subscribe(*filters[2:] * 500))
        assert granted_in_all(coordinator, broadcasts(0, MOST + 500)) == MOST + 500


@pytest.mark.usefixtures("broker")
def test_repeated_subscriptions_are_limited_for_each_connection(fleet: TlsFleet) -> None:
    user = "cam-1"
    own = f"{ROOT}/check/{user}/+"
    with client(fleet, user) as party:
        granted = party.subscribe(*[own] * 1000)
        assert granted[:64] == [True] * 64
        assert not all(granted[64:200])  # one more for each 62 ms that the broker had to wait
        assert until(lambda: party.subscribe(own) == [True])
    with client(fleet, user) as again:
        assert all(again.subscribe(*[own] * 64))


@pytest.mark.usefixtures("broker")
def test_who_has_waited_long_is_granted_no_more_at_once(fleet: TlsFleet) -> None:
    own = f"{ROOT}/down/cam-1/#"
    with client(fleet, "cam-1") as device:
        device.subscribe(own)
        time.sleep(2)  # in which 32 more could be saved
        assert sum(device.subscribe(*[own] * 1000)) < 85


@pytest.mark.usefixtures("broker")
def test_an_agent_listens_to_as_many_blobs_as_a_task_names_and_to_others_after_them(
    fleet: TlsFleet,
) -> None:
    own = [LAB.birth("cam-1"), LAB.coordinator(), LAB.every_down("cam-1")]
    with client(fleet, "cam-1") as device:
        assert all(device.subscribe(*own))
        named = broadcasts(0, 256 * 5)
        assert granted_in_all(device, named) == len(named)
        for start in range(0, len(named), 500):
            device.client.unsubscribe(named[start : start + 500])
        for number in range(len(named), len(named) + 600):  # one each round, for many rounds
            (topic,) = broadcasts(number, 1)
            assert device.subscribe(topic) == [True]
            device.client.unsubscribe(topic)


@pytest.mark.usefixtures("broker")
def test_subscriptions_at_one_time_are_limited(fleet: TlsFleet) -> None:
    with client(fleet, "cam-1") as device:
        total = granted_in_all(device, broadcasts(0, MOST))
        for turn in range(20):
            time.sleep(0.05)  # in which 25 more could be afforded
            total += sum(device.subscribe(*broadcasts(MOST * (turn + 1), 100)))
        assert total == MOST


@pytest.mark.usefixtures("broker")
def test_who_has_no_user_is_limited_too(fleet: TlsFleet) -> None:
    own = f"{ROOT}/enrol/client.a/response"
    with stranger(fleet, "client.a") as nobody:
        assert nobody.subscribe(own, "#", f"{ROOT}/enrol/+/response", "//+", "/", f"{ROOT}//#") == [
            *(True, False, False, False, True, False)
        ]
        assert not all(nobody.subscribe(*[own] * 200))


def test_reloads_and_many_connections_leave_it_at_work(
    fleet: TlsFleet, broker: ChildProcess
) -> None:
    with client(fleet, "viewer.vi") as kept:
        for _ in range(2):
            reload(broker)
            for user in ("cam-1", "viewer.vi", "operator.al"):
                with client(fleet, user) as party:
                    assert party.subscribe("#", f"{ROOT}/check/{user}/+") == [False, True]
        assert kept.subscribe("#", LAB.events()) == [False, True]
    assert broker.is_running()


def test_without_it_access_rules_alone_apply(fleet: TlsFleet, tmp_path: Path) -> None:
    with (
        mosquitto(fleet, tmp_path / "broker"),
        client(fleet, "coordinator") as coordinator,
        client(fleet, "cam-1") as device,
    ):
        assert device.subscribe("#", LAB.task("cam-1")) == [True, True]
        coordinator.publish(LAB.task("cam"), b"another's")
        coordinator.publish(LAB.task("cam-1"), b"mine")
        assert device.receive() == (LAB.task("cam-1"), b"mine")
