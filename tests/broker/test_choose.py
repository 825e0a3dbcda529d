from __future__ import annotations

from pathlib import Path

import pytest

from broker.address import LOOPBACK, free_port
from broker.start_broker import Kind, start_broker
from edgefed.config.values.address import Address
from edgefed.errors import UsageError


def absent() -> Path | None:
    return None


@pytest.mark.mosquitto
def test_mosquitto_is_taken_when_it_is_there(tmp_path: Path) -> None:
    broker = start_broker(Address(LOOPBACK, free_port()), tmp_path)
    broker.stop()
    assert broker.name == "mosquitto"


def test_the_demo_broker_stands_in_on_loopback(tmp_path: Path) -> None:
    pytest.importorskip("amqtt")
    broker = start_broker(Address("localhost", free_port()), tmp_path, find=absent)
    broker.stop()
    assert broker.name == "embedded"


@pytest.mark.parametrize(("kind", "host"), [("auto", "0.0.0.0"), ("mosquitto", LOOPBACK)])
def test_nothing_stands_in_elsewhere(kind: Kind, host: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        start_broker(Address(host, free_port()), tmp_path, kind, find=absent)
    assert caught.value.code == "broker.no_mosquitto"
    assert "apt install mosquitto" in caught.value.hint


@pytest.mark.mosquitto
def test_letting_everybody_in_from_outside_must_be_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        start_broker(Address("0.0.0.0", free_port()), tmp_path)
    assert caught.value.code == "broker.anonymous"
    assert "--allow-anonymous" in caught.value.hint
