"""The address of a broker, with and without a login."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.config.values.address import Address, parse_address, without_password
from edgefed.errors import UsageError

LOGIN = "mqtt://cam-1:s3cr%40t@192.0.2.7:1884"


def test_an_address_may_hold_a_login() -> None:
    assert parse_address(LOGIN) == Address("192.0.2.7", 1884, "cam-1", "s3cr@t")
    assert parse_address("mqtt://192.0.2.7") == Address("192.0.2.7", 1883)


def test_what_is_shown_of_an_address_holds_no_password() -> None:
    address = parse_address(LOGIN)
    assert str(address) == "mqtt://192.0.2.7:1884"
    assert "s3cr" not in repr(address)
    assert without_password(LOGIN) == "mqtt://cam-1:…@192.0.2.7:1884"
    assert without_password(str(address)) == str(address)


def test_an_error_about_an_address_holds_no_password() -> None:
    with pytest.raises(UsageError) as caught:
        parse_address("mqtts://cam-1:s3cret@192.0.2.7:1884")
    assert "s3cret" not in caught.value.message


def test_tls_has_a_port_of_its_own_and_no_login() -> None:
    address = parse_address("mqtts://broker.lan")
    assert (address.tls, address.port, str(address)) == (True, 8883, "mqtts://broker.lan:8883")
    assert parse_address("mqtts://broker.lan:1884").port == 1884
    for url in ("mqtts://u:p@broker.lan", "mqtt://u:p@broker.lan:8883"):
        with pytest.raises(UsageError) as caught:
            parse_address(url)
        assert caught.value.code == "broker.tls"
        assert "u:p" not in caught.value.message
    assert parse_address("mqtt://broker.lan:8884").port == 8884


@settings(max_examples=25)
@given(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8")))
def test_any_login_survives_the_text(user: str, password: str) -> None:
    for host in ("broker.lan", "2001:db8::7"):
        address = Address(host, 1883, user, password)
        assert parse_address(address.with_login()) == address
