from __future__ import annotations

import socket

import pytest

from broker.address import (
    LOOPBACK,
    bind_host,
    connect_host,
    free_port,
    port_is_free,
    require_free,
)
from edgefed.config.values.address import Address
from edgefed.errors import UsageError


def test_a_free_port_can_be_listened_on() -> None:
    address = Address(LOOPBACK, free_port())
    require_free(address)
    with socket.create_server((address.host, address.port)):
        assert not port_is_free(address)
    assert port_is_free(address)


def test_a_taken_port_is_named_with_what_to_do() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            require_free(Address(LOOPBACK, port))
    assert caught.value.code == "broker.port_in_use"
    assert str(port) in caught.value.message
    assert "--port" in caught.value.hint
    assert str(port) in caught.value.hint


def test_a_port_taken_on_every_address_is_taken_on_loopback() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert not port_is_free(Address(LOOPBACK, server.getsockname()[1]))


def test_a_connection_that_just_ended_does_not_hold_the_port() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((LOOPBACK, port)) as client:
            accepted, _ = server.accept()
            accepted.close()  # the side that closes first keeps the port in TIME_WAIT
            assert client.recv(1) == b""
    assert port_is_free(Address(LOOPBACK, port))


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(UsageError) as caught:
        require_free(Address("203.0.113.9", 1883))
    assert caught.value.code == "broker.bind"
    assert "203.0.113.9" in caught.value.message


@pytest.mark.parametrize(
    ("host", "bound", "connected"),
    [
        ("localhost", LOOPBACK, LOOPBACK),
        ("0.0.0.0", "0.0.0.0", LOOPBACK),
        ("::", "::", "::1"),
        ("192.0.2.7", "192.0.2.7", "192.0.2.7"),
    ],
)
def test_hosts_to_bind_and_to_connect_to(host: str, bound: str, connected: str) -> None:
    assert bind_host(Address(host)) == bound
    assert connect_host(Address(host)) == connected
