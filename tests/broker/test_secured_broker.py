from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from broker import configuration, secured_broker
from broker.address import LOOPBACK, free_ports, port_is_free
from broker.configuration import LIMITS, MEMORY_LIMIT_BYTES
from broker.secured_broker import (
    BrokerSupervisor,
    EnrolmentBroker,
    SecuredBroker,
    SecuredBrokers,
)
from broker.secured_configuration import ENROLMENT_OPEN_FILES
from edgefed.errors import UnreachableError, UsageError
from edgefed.transport.link import Link
from edgefed.wire.topics import Topics
from tests.broker.clients import is_gone, until
from tests.broker.test_secured_configuration import is_refused
from tests.broker.tls_fleet import FLEET, TlsFleet, build_plugin, client, make_fleet, stranger

LAB = Topics(FLEET)


@pytest.fixture
def fleet(tmp_path: Path) -> TlsFleet:
    return make_fleet(tmp_path / "state", free_ports(), [("device", "cam-1"), ("device", "cam-2")])


@contextmanager
def supervised(fleet: TlsFleet, folder: Path) -> Iterator[tuple[BrokerSupervisor, list[str]]]:
    told: list[str] = []
    supervisor = BrokerSupervisor(
        lambda: SecuredBroker(fleet.address, folder, fleet.files), told.append
    )
    end = threading.Event()
    running = threading.Thread(target=supervisor.run, args=(end,))
    running.start()
    try:
        yield supervisor, told
    finally:
        end.set()
        running.join()
    assert is_gone(supervisor.broker.pid)


def admits(fleet: TlsFleet, user: str) -> bool:
    with client(fleet, user) as device:
        return device.answer == "Success"


@pytest.mark.mosquitto
def test_a_removed_device_and_a_new_one_need_no_command(fleet: TlsFleet, tmp_path: Path) -> None:
    with supervised(fleet, tmp_path) as (supervisor, told):
        first = supervisor.broker.pid
        gone = fleet.parties["cam-2"]
        with client(fleet, "cam-1") as kept:
            fleet.remove("cam-2")
            fleet.parties["cam-2"] = gone
            assert until(lambda: is_refused(fleet))
            fleet.add("device", "cam-3")
            del fleet.parties["cam-2"]
            fleet.write_access()
            assert until(lambda: "applied" in told[-1])
            with client(fleet, "cam-3") as newcomer:
                newcomer.subscribe(LAB.birth("cam-3"))

                def is_heard() -> bool:
                    newcomer.publish(LAB.birth("cam-3"), b"here")
                    return not newcomer.messages.empty()

                assert until(is_heard)  # the broker reads the rules when it gets to it
                assert newcomer.receive() == (LAB.birth("cam-3"), b"here")
            assert not kept.ended.is_set()
        assert supervisor.broker.pid == first


@pytest.mark.mosquitto
def test_a_killed_broker_is_started_again(
    fleet: TlsFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secured_broker, "FIRST_DELAY", 0.05)
    with supervised(fleet, tmp_path) as (supervisor, told):
        pids = {supervisor.broker.pid}
        for _ in range(2):
            os.kill(supervisor.broker.pid, signal.SIGKILL)
            assert until(lambda: supervisor.broker.pid not in pids)
            pids.add(supervisor.broker.pid)
            assert admits(fleet, "cam-1")
    assert [line.split(";")[0] for line in told].count("the broker has ended") == 2
    assert "runs again" in told[-1]


@pytest.mark.mosquitto
def test_a_file_that_changes_as_the_broker_ends_is_no_error(
    fleet: TlsFleet, tmp_path: Path
) -> None:
    broker = SecuredBroker(fleet.address, tmp_path, fleet.files)
    os.kill(broker.pid, signal.SIGKILL)
    assert until(lambda: is_gone(broker.pid))
    fleet.write_access()
    assert broker.reload_if_changed()
    broker.stop()


@pytest.mark.mosquitto
def test_a_start_that_fails_is_told_and_tried_again(
    fleet: TlsFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secured_broker, "FIRST_DELAY", 0.05)
    with supervised(fleet, tmp_path) as (supervisor, told):
        kept = fleet.files.acl.rename(tmp_path / "acl")
        os.kill(supervisor.broker.pid, signal.SIGKILL)
        assert until(lambda: any("is missing" in line for line in told))
        kept.rename(fleet.files.acl)
        assert until(lambda: "runs again" in told[-1])
        assert admits(fleet, "cam-1")


@pytest.mark.mosquitto
@pytest.mark.parametrize("offset", [0, 2])
def test_a_busy_port_is_named(fleet: TlsFleet, tmp_path: Path, offset: int) -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, fleet.port + offset))
        other.listen()
        with pytest.raises(UsageError, match=f"Port {fleet.port + offset} ") as caught:
            SecuredBrokers(fleet.address, tmp_path, fleet.files, print)
    assert caught.value.code == "broker.port_in_use"
    assert "ss -ltnp" in caught.value.hint
    assert "edgefed broker address --port PORT" in caught.value.hint
    assert port_is_free(fleet.address)


@pytest.mark.mosquitto
def test_a_party_whose_certificate_is_revoked_says_so_once(
    fleet: TlsFleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = fleet.parties["cam-2"]
    fleet.remove("cam-2")
    with supervised(fleet, tmp_path):
        link = Link(replace(fleet.address, credentials=gone), "gone", lambda arrival: None)
        link.start()
        try:
            assert until(lambda: "[broker.revoked]" in caplog.text)
        finally:
            link.stop()
    assert f"The certificate of cam-2 is revoked, says the broker at {fleet.address}" in caplog.text


def test_a_machine_without_mosquitto_is_told_so(
    fleet: TlsFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.mosquitto.find_mosquitto", lambda: None)
    with pytest.raises(UsageError) as caught:
        SecuredBroker(fleet.address, tmp_path, fleet.files)
    assert (caught.value.code, caught.value.hint) == (
        "broker.no_mosquitto",
        "apt install mosquitto",
    )


@pytest.mark.mosquitto
def test_retained_presence_survives_an_orderly_restart(fleet: TlsFleet, tmp_path: Path) -> None:
    for turn in range(2):
        broker = SecuredBroker(fleet.address, tmp_path / "broker", fleet.files)
        try:
            with client(fleet, "cam-1") as device:
                if turn == 0:
                    device.publish(LAB.birth("cam-1"), b"kept", retain=True)
                else:
                    device.subscribe(LAB.birth("cam-1"))
                    assert device.receive() == (LAB.birth("cam-1"), b"kept")
        finally:
            broker.stop()


@pytest.mark.mosquitto
def test_it_listens_on_all_addresses_of_the_machine(fleet: TlsFleet, tmp_path: Path) -> None:
    everywhere = replace(fleet.address, host="0.0.0.0")
    with (
        SecuredBroker(everywhere, tmp_path, fleet.files),
        EnrolmentBroker(everywhere, tmp_path, fleet.files),
    ):
        text = (tmp_path / "mosquitto.conf").read_text()
        assert f"listener {fleet.port}\n" in text
        assert f"listener {fleet.port + 1}\n" in (tmp_path / "enrolment/mosquitto.conf").read_text()
        with stranger(fleet) as nobody:
            assert nobody.answer == "Success"


@pytest.mark.mosquitto
def test_a_database_that_mosquitto_cannot_open_is_moved_aside(
    fleet: TlsFleet, tmp_path: Path
) -> None:
    database = tmp_path / "broker" / "database" / "mosquitto.db"
    told: list[str] = []
    with (
        SecuredBroker(fleet.address, tmp_path / "broker", fleet.files, tell=told.append),
        client(fleet, "cam-1") as device,
    ):
        device.publish(LAB.birth("cam-1"), b"kept" * 100, retain=True)
    damaged = database.read_bytes()[:-200]
    database.write_bytes(damaged)
    assert told == []
    with SecuredBroker(fleet.address, tmp_path / "broker", fleet.files, tell=told.append):
        assert admits(fleet, "cam-1")
    aside = database.with_suffix(".unreadable")
    assert aside.read_bytes() == damaged
    (line,) = told
    assert str(aside) in line and "\n" not in line


def test_files_that_another_user_may_read_keep_their_rights(fleet: TlsFleet) -> None:
    fleet.files.acl.chmod(0o640)
    fleet.files.revoked.chmod(0o644)
    before = fleet.files.acl.read_bytes()
    fleet.remove("cam-2")
    assert fleet.files.acl.read_bytes() != before
    modes = [path.stat().st_mode & 0o777 for path in (fleet.files.acl, fleet.files.revoked)]
    assert modes == [0o640, 0o644]


@pytest.mark.mosquitto
def test_a_database_above_the_memory_limit_is_moved_aside(
    fleet: TlsFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SecuredBroker(fleet.address, tmp_path, fleet.files), client(fleet, "cam-1") as device:
        device.publish(LAB.birth("cam-1"), bytes(200_000), retain=True)
    lower = LIMITS.replace(str(MEMORY_LIMIT_BYTES), "150000")
    monkeypatch.setattr(configuration, "LIMITS", lower)
    told: list[str] = []
    with SecuredBroker(fleet.address, tmp_path, fleet.files, tell=told.append):
        assert admits(fleet, "cam-1")
    (line,) = told
    assert "cannot open its database" in line


@pytest.mark.mosquitto
def test_a_start_that_fails_for_another_reason_keeps_the_database(
    fleet: TlsFleet, tmp_path: Path
) -> None:
    database = tmp_path / "database" / "mosquitto.db"
    with SecuredBroker(fleet.address, tmp_path, fleet.files), client(fleet, "cam-1") as device:
        device.publish(LAB.birth("cam-1"), b"kept", retain=True)
    kept = database.read_bytes()
    fleet.files.certificate.write_text("no certificate")
    with pytest.raises(UnreachableError):
        SecuredBroker(fleet.address, tmp_path, fleet.files)
    assert database.read_bytes() == kept


@pytest.mark.mosquitto
def test_the_plug_in_that_was_built_is_used(
    fleet: TlsFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, told = build_plugin(tmp_path), list[str]()
    monkeypatch.setattr(secured_broker, "find_plugin", lambda: built)
    with (
        SecuredBroker(fleet.address, tmp_path / "broker", fleet.files, tell=told.append),
        client(fleet, "cam-1") as device,
    ):
        assert device.subscribe("#", LAB.task("cam-1")) == [False, True]
    assert told == []


@pytest.mark.mosquitto
@pytest.mark.parametrize(
    ("built", "line"), [(False, "is not built"), (True, "cannot load its plug-in")]
)
def test_a_broker_without_a_plug_in_that_it_can_load_starts_and_says_so(
    fleet: TlsFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: bool, line: str
) -> None:
    damaged, told = tmp_path / "plugin.so", list[str]()
    damaged.write_bytes(b"no library at all")
    monkeypatch.setattr(secured_broker, "find_plugin", lambda: damaged if built else None)
    with (
        SecuredBroker(fleet.address, tmp_path / "broker", fleet.files, tell=told.append),
        client(fleet, "cam-1") as device,
    ):
        assert device.subscribe("#", LAB.task("cam-1")) == [True, True]
    assert len(told) == 1
    assert line in told[0] and secured_broker.UNLIMITED in told[0]


@pytest.mark.mosquitto
def test_the_brokers_are_started_again_without_each_other(
    fleet: TlsFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secured_broker, "FIRST_DELAY", 0.05)
    told: list[str] = []
    brokers = SecuredBrokers(fleet.address, tmp_path, fleet.files, told.append)
    end = threading.Event()
    running = threading.Thread(target=brokers.run, args=(end,))
    running.start()
    try:
        first, killed = brokers.fleet.broker.pid, brokers.enrolment.broker.pid
        limits = Path(f"/proc/{killed}/limits").read_text()
        assert re.search(
            rf"Max open files +{ENROLMENT_OPEN_FILES} +{ENROLMENT_OPEN_FILES} ", limits
        )
        assert os.getpriority(os.PRIO_PROCESS, killed) > os.getpriority(os.PRIO_PROCESS, first)
        with client(fleet, "cam-1") as device:
            os.kill(killed, signal.SIGKILL)
            assert until(lambda: brokers.enrolment.broker.pid != killed)
            with stranger(fleet) as nobody:
                assert nobody.answer == "Success"
            assert not device.ended.is_set()
        assert brokers.fleet.broker.pid == first
    finally:
        end.set()
        running.join()
    assert is_gone(first) and is_gone(brokers.enrolment.broker.pid)
    assert told[0].partition(";")[0] == "the broker for enrolment has ended"
