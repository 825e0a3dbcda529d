"""Where a program finds its broker, as whom it connects, and when it refuses to."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.config.fleet.broker_address import COORDINATOR, broker_address
from edgefed.config.fleet.settings import FleetSettings
from edgefed.errors import NotAllowedError
from tests.signed_fleet import Trust


def settings(folder: Path, **values: object) -> FleetSettings:
    return FleetSettings.model_validate({"state": folder, "fleet": "signed", **values})


def code_of(chosen: FleetSettings) -> str:
    with pytest.raises(NotAllowedError) as caught:
        broker_address(chosen)
    assert caught.value.hint
    return caught.value.code


def enrolled(folder: Path) -> Trust:
    return Trust(folder / "trust" / "signed", port=9883)


def test_without_credentials_the_broker_of_this_machine_counts(tmp_path: Path) -> None:
    address = broker_address(settings(tmp_path))
    assert (str(address), address.credentials) == ("mqtt://127.0.0.1:1883", None)


def test_another_machine_needs_credentials_or_insecure(tmp_path: Path) -> None:
    plain = "mqtt://192.0.2.7:1883"
    assert code_of(settings(tmp_path, broker=plain)) == "broker.insecure"
    assert str(broker_address(settings(tmp_path, broker=plain, insecure=True))) == plain
    assert str(broker_address(settings(tmp_path, broker="mqtt://localhost:1"))).endswith(":1")
    assert code_of(settings(tmp_path, broker="mqtts://192.0.2.7")) == "trust.missing"


def test_credentials_say_where_the_broker_is(tmp_path: Path) -> None:
    own = enrolled(tmp_path).issue("operator", "ann")
    address = broker_address(settings(tmp_path))
    assert (str(address), address.tls) == ("mqtts://127.0.0.1:9883", True)
    assert address.credentials is not None
    assert address.credentials.certificate == own.certificate
    other = broker_address(settings(tmp_path, broker="mqtts://192.0.2.7"))
    assert str(other) == "mqtts://192.0.2.7:8883"
    assert other.credentials is not None
    assert other.credentials.certificate == own.certificate


def test_each_program_uses_its_own_credentials(tmp_path: Path) -> None:
    trust = enrolled(tmp_path)
    made = {role: trust.issue(role, "ann") for role in ("viewer", "operator")}
    made["coordinator"] = trust.issue("coordinator")
    made["device"] = trust.issue("device", "cam-1")
    for users, role in (
        (("operator.*", "viewer.*"), "operator"),
        (("viewer.*",), "viewer"),
        (COORDINATOR, "coordinator"),
        (("cam-1",), "device"),
    ):
        found = broker_address(settings(tmp_path), users).credentials
        assert found is not None
        assert found.certificate == made[role].certificate
    assert broker_address(settings(tmp_path), ("cam-2",)).credentials is None


def test_a_plain_address_is_used_without_credentials(tmp_path: Path) -> None:
    enrolled(tmp_path).issue("operator", "ann")
    address = broker_address(settings(tmp_path, broker="mqtt://127.0.0.1:1883"))
    assert (address.tls, address.credentials) == (False, None)
