from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from broker.address import free_port
from broker.embedded import EmbeddedBroker
from edgefed.config.values.address import Address
from edgefed.errors import UsageError


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "::", "broker.lan"])
def test_other_machines_are_not_served(host: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        EmbeddedBroker(Address(host, free_port()), tmp_path)
    assert caught.value.code == "broker.demo_only"
    assert "mosquitto" in caught.value.hint


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "broker.embedded", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_program_serves_no_other_machine_either() -> None:
    ended = run("0.0.0.0", str(free_port()))
    assert ended.returncode == 2
    assert "broker.demo_only" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_program_wants_an_address_and_a_port() -> None:
    ended = run("127.0.0.1", "mqtt")
    assert ended.returncode == 2
    assert "HOST PORT" in ended.stderr


def test_the_program_says_whose_port_it_cannot_have(embedded_broker: EmbeddedBroker) -> None:
    ended = run(embedded_broker.address.host, str(embedded_broker.address.port))
    assert ended.returncode == 3
    assert "address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_it_says_that_it_is_a_demo_broker(embedded_broker: EmbeddedBroker) -> None:
    said = embedded_broker.log.read_text()
    assert said.startswith("demo broker on mqtt://127.0.0.1:")
    embedded_broker.stop()
    assert embedded_broker.log.read_text() == said
