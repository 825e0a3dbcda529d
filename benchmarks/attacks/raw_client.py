"""An MQTT client of an attacker: packets of its own making over TLS, without any limit."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterable
from contextlib import suppress

from broker.address import connect_host
from edgefed.config.values.address import Address

CONNECT, PUBLISH, SUBSCRIBE, PING = 0x10, 0x30, 0x82, 0xC0
QOS_1, RETAIN = 0x02, 0x01
TIMEOUT = 60.0
"""Seconds that a frozen broker is waited for."""


def length(number: int) -> bytes:
    """Return a remaining length as MQTT encodes it."""
    encoded = bytearray()
    while True:
        number, digit = divmod(number, 128)
        encoded.append(digit | (0x80 if number else 0))
        if not number:
            return bytes(encoded)


def text(word: str) -> bytes:
    """Return a string as MQTT encodes it."""
    encoded = word.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def packet(kind: int, body: bytes) -> bytes:
    """Return a packet."""
    return bytes([kind]) + length(len(body)) + body


def connect(client_id: str) -> bytes:
    """Return the packet that opens a clean session of MQTT 3.1.1."""
    return packet(CONNECT, text("MQTT") + b"\x04\x02\x00\x00" + text(client_id))


def publish(topic: str, payload: bytes, *, retain: bool) -> bytes:
    """Return a message with QoS 1."""
    head = PUBLISH | QOS_1 | (RETAIN if retain else 0)
    return packet(head, text(topic) + b"\x00\x01" + payload)


def subscribe(filters: Iterable[str]) -> bytes:
    """Return a subscription to many filters in one packet."""
    return packet(SUBSCRIBE, b"\x00\x01" + b"".join(text(each) + b"\x00" for each in filters))


class RawClient:
    """One connection; what the broker sends is thrown away.

    Raises:
        OSError: the broker does not admit it.
    """

    def __init__(self, address: Address, tls: ssl.SSLContext, client_id: str) -> None:
        host = connect_host(address)
        plain = socket.create_connection((host, address.port), TIMEOUT)
        try:
            self._socket = tls.wrap_socket(plain, server_hostname=host)
        except OSError:
            plain.close()
            raise
        self.send(connect(client_id))
        self._draining = threading.Thread(target=self._drain, daemon=True)
        self._draining.start()

    def send(self, data: bytes) -> None:
        """Hand bytes to the network.

        Raises:
            OSError: the broker has ended the connection.
        """
        self._socket.sendall(data)

    def close(self) -> None:
        """End the connection without a word."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._draining.join()  # it would read from the next file with this descriptor
        self._socket.close()

    def _drain(self) -> None:
        with suppress(OSError, ValueError):
            while self._socket.recv(65_536):
                pass
