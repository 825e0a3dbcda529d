from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from broker.acl import password_acl
from broker.address import LOOPBACK, free_port
from broker.configuration import configuration
from edgefed.config.values.address import Address
from edgefed.errors import UsageError
from edgefed.wire.limits import MAX_PACKET_BYTES
from edgefed.wire.topics import Topics
from tests.broker.clients import connected
from tests.broker.servers import USER, running

LAN = Address("192.0.2.7", 1883)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_limits_stand_in_the_text() -> None:
    text = lines(configuration(Address(LOOPBACK, 1884)))
    assert "listener 1884 127.0.0.1" in text
    assert f"max_packet_size {MAX_PACKET_BYTES}" in text
    assert "set_tcp_nodelay true" in text
    assert "max_inflight_messages 20" in text
    assert not any(line.startswith("persistence_location") for line in text)


def test_everybody_is_let_in_on_loopback_alone() -> None:
    assert "allow_anonymous true" in lines(configuration(Address("localhost")))
    assert "allow_anonymous false" in lines(configuration(LAN))


def test_a_decision_stands_over_the_address() -> None:
    assert "allow_anonymous true" in lines(configuration(LAN, allow_anonymous=True))
    assert "allow_anonymous false" in lines(configuration(Address(LOOPBACK), allow_anonymous=False))


def test_a_path_cannot_smuggle_in_an_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        configuration(LAN, tmp_path / "a\nallow_anonymous true")
    assert caught.value.code == "broker.path"


@pytest.mark.mosquitto
def test_the_text_goes_below_a_main_file_such_as_debians(tmp_path: Path) -> None:
    address = Address(LOOPBACK, free_port())
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "edgefed.conf").write_text(configuration(address, user=USER))
    main = (
        f"pid_file {tmp_path}/pid\npersistence true\npersistence_location {tmp_path}/\n"
        f"log_dest file {tmp_path}/main.log\ninclude_dir {tmp_path}/conf.d\n"
    )
    with running(main, address, tmp_path), connected(address) as client:
        assert client.answer == "Success"


def secured(address: Address, folder: Path, users: list[str]) -> str:
    """Write users and rules; return the configuration that uses them."""
    passwords, rules = folder / "passwords", folder / "acl"
    passwords.touch(mode=0o600)
    for user in users:
        subprocess.run(["mosquitto_passwd", "-b", str(passwords), user, f"{user}-pass"], check=True)
    rules.write_text(password_acl("lab"))
    rules.chmod(0o600)
    return configuration(address, allow_anonymous=False, passwords=passwords, acl=rules, user=USER)


def test_the_rules_of_a_fleet_of_any_name_name_its_topics() -> None:
    for fleet in ("device", "up"):
        rules = password_acl(fleet).splitlines()
        assert f"pattern write edgefed/{fleet}/up/%u/birth" in rules
        assert all(f" edgefed/{fleet}/" in rule for rule in rules if rule.startswith("pattern"))


@pytest.mark.mosquitto
def test_the_rules_keep_devices_apart(tmp_path: Path) -> None:
    lab = Topics("lab")
    address = Address(LOOPBACK, free_port())
    text = secured(address, tmp_path, ["coordinator", "cam-1", "cam-2"])
    with (
        running(text, address, tmp_path),
        connected(address, user="coordinator", password="coordinator-pass") as coordinator,
        connected(address, user="cam-1", password="cam-1-pass") as first,
        connected(address, user="cam-2", password="cam-2-pass") as second,
    ):
        coordinator.subscribe(f"{lab.root}/#")
        first.subscribe("#")
        # What is forbidden is acknowledged and dropped; what is allowed comes alone.
        for forbidden in (
            lab.birth("cam-2"),
            lab.coordinator(),
            lab.request("local/2"),
            lab.events(),
        ):
            first.publish(forbidden, b"forged")
        first.publish(lab.birth("cam-1"), b"mine")
        assert coordinator.receive() == (lab.birth("cam-1"), b"mine")
        second.publish(lab.up_chunk("cam-2"), b"hers")
        assert coordinator.receive() == (lab.up_chunk("cam-2"), b"hers")
        coordinator.publish(lab.task("cam-2"), b"for the second")
        coordinator.publish(lab.task("cam-1"), b"for the first")
        coordinator.publish(lab.coordinator(), b"for all")
        assert first.receive() == (lab.birth("cam-1"), b"mine")
        assert first.receive() == (lab.task("cam-1"), b"for the first")
        assert first.receive() == (lab.coordinator(), b"for all")


@pytest.mark.mosquitto
def test_commands_of_one_user_do_not_throw_each_other_off(tmp_path: Path) -> None:
    address = Address(LOOPBACK, free_port())
    text = secured(address, tmp_path, ["coordinator"])
    with (
        running(text, address, tmp_path),
        connected(address, "one", user="coordinator", password="coordinator-pass") as first,
        connected(address, "two", user="coordinator", password="coordinator-pass") as second,
    ):
        assert second.answer == "Success"
        first.subscribe(Topics("lab").coordinator())
        assert not first.ended.is_set()


@pytest.mark.mosquitto
def test_without_users_a_closed_broker_lets_nobody_in(tmp_path: Path) -> None:
    address = Address(LOOPBACK, free_port())
    text = configuration(address, allow_anonymous=False, user=USER)
    with (
        running(text, address, tmp_path),
        connected(address) as nameless,
        connected(address, user="cam-1", password="guess") as named,
    ):
        assert nameless.answer == "Not authorized"
        assert named.answer == "Not authorized"
