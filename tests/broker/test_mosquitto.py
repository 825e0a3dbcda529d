from __future__ import annotations

from pathlib import Path

import pytest

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker, find_mosquitto
from broker.start_broker import start_broker
from edgefed.config.values.address import Address
from edgefed.errors import StorageError, UnreachableError
from tests.broker.clients import connected

pytestmark = pytest.mark.mosquitto


def test_it_is_found_without_the_systems_folders_on_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert find_mosquitto() is not None


def test_a_late_subscriber_gets_the_presence_of_a_large_fleet(mosquitto: MosquittoBroker) -> None:
    count = 400
    with connected(mosquitto.address) as devices, connected(mosquitto.address) as coordinator:
        for index in range(count):
            devices.client.publish(f"up/{index}/birth", bytes(300), qos=1, retain=True)
        devices.publish("up/last/birth", b"", retain=True)
        coordinator.subscribe("up/+/birth")
        topics = {coordinator.receive()[0] for _ in range(count)}
    assert len(topics) == count


def test_retained_messages_survive_an_orderly_restart(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    with connected(mosquitto.address) as client:
        client.publish("all/state", b"round 3", retain=True)
    mosquitto.stop()
    with (
        MosquittoBroker(mosquitto.address, tmp_path / "mosquitto") as again,
        connected(again.address) as client,
    ):
        client.subscribe("all/state")
        assert client.receive() == ("all/state", b"round 3")


def test_a_broker_that_ends_at_once_says_why(tmp_path: Path) -> None:
    address = Address(LOOPBACK, free_port())
    program = tmp_path / "mosquitto"
    program.write_text("#!/bin/sh\necho 'Error: no such option'\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(UnreachableError) as caught:
        MosquittoBroker(address, tmp_path / "folder", program=program)
    assert "no such option" in caught.value.message
    assert str(tmp_path / "folder") in caught.value.hint


def test_a_program_that_is_not_there_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError) as caught:
        MosquittoBroker(
            Address(LOOPBACK, free_port()), tmp_path / "folder", program=tmp_path / "absent"
        )
    assert caught.value.code == "broker.start"


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        start_broker(Address(LOOPBACK, free_port()), tmp_path / "file", "mosquitto")
