"""The address of a broker: ``mqtts://HOST:PORT`` with TLS, or ``mqtt://HOST:PORT`` without."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from edgefed.errors import UsageError

if TYPE_CHECKING:
    from edgefed.trust.credentials import Credentials

DEFAULT_PORT = 1883
TLS_PORT = 8883
DEFAULT_PORTS = {"mqtt": DEFAULT_PORT, "mqtts": TLS_PORT}

ENROLMENT_OFFSET = 1
"""A broker with TLS takes requests for certificates on this port after that of its address."""

COMMANDS_OFFSET = 2
"""The offset of a TLS broker's port for parties with several connections of one certificate."""


@dataclass(frozen=True)
class Address:
    """The address of a broker, and the login; its text leaves the login out.

    Attributes:
        user: the broker's user; empty where it requires none.
        tls: whether the connection is encrypted, and both sides authenticated.
        credentials: with TLS, those of the connecting party; set by ``config.broker_address``.
    """

    host: str
    port: int = DEFAULT_PORT
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    credentials: Credentials | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def scheme(self) -> str:
        """How the address begins."""
        return "mqtts" if self.tls else "mqtt"

    def with_login(self) -> str:
        """Return the address with user and password, as ``parse_address`` reads it; a secret."""
        if not self.user:
            return str(self)
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return str(self).replace("://", f"://{login}@", 1)

    def for_enrolment(self) -> Address:
        """Return where the broker admits clients without a certificate, which is with TLS only."""
        return replace(self, port=self.port + ENROLMENT_OFFSET)

    def for_commands(self) -> Address:
        """Return where one party may have several connections.

        A broker with TLS ends the older of two connections of a device or of the coordinator.
        """
        return replace(self, port=self.port + COMMANDS_OFFSET) if self.tls else self

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(url: str) -> Address:
    """Return the address in ``mqtts://HOST[:PORT]`` or ``mqtt://[USER:PASSWORD@]HOST[:PORT]``.

    A character of user or password that an address cannot hold is written as ``%`` and its code.

    Raises:
        UsageError: it is not of that form, or names the port of the other scheme.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        parts, port = urlsplit(""), 0
    if not parts.hostname or parts.path not in ("", "/") or not port:
        raise _not_an_address(url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if (parts.scheme, port) == ("mqtt", TLS_PORT):
        raise UsageError(
            f"'{without_password(url)}' names the port of MQTT over TLS ({TLS_PORT}).",
            code="broker.tls",
            hint="write mqtts:// with TLS, or another port without, such as 1883",
        )
    if parts.scheme == "mqtts" and (user or password):
        raise UsageError(
            f"'{without_password(url)}' contains a login.",
            code="broker.tls",
            hint="with mqtts:// a certificate identifies the client: write mqtts://HOST:PORT",
        )
    return Address(parts.hostname, port, user, password, tls=parts.scheme == "mqtts")


def _not_an_address(url: str) -> UsageError:
    return UsageError(
        f"'{without_password(url)}' is not a broker address.",
        code="broker.address",
        hint="write it as mqtts://HOST:PORT, or without TLS as mqtt://HOST:PORT",
    )


def without_password(url: str) -> str:
    """Return the text of an address as it may be shown."""
    scheme, mark, rest = url.partition("://")
    login, at, host = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    return f"{scheme}{mark}{user}:…@{host}" if at and colon else url
