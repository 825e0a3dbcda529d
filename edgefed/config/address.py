"""The address of a broker: ``mqtt://HOST:PORT``, with an optional user name and password."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from urllib.parse import quote, unquote, urlsplit

from edgefed.errors import UsageError

DEFAULT_PORT = 1883
TLS_PORT = 8883

ENROLMENT_OFFSET = 1
"""A broker with TLS takes requests for certificates on this port after that of its address."""

COMMANDS_OFFSET = 2
"""A broker with TLS serves those who connect several times with one certificate on this port."""

TLS_HINT = (
    "use mqtt:// and a port without TLS, such as 1883, in a network that you trust or through a VPN"
)


@dataclass(frozen=True)
class Address:
    """Where a broker listens, and as whom to log in; its text leaves the login out.

    Attributes:
        user: the broker's user; empty where it asks for none.
    """

    host: str
    port: int = DEFAULT_PORT
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mqtt://{host}:{self.port}"

    def with_login(self) -> str:
        """Return the address with user and password, as ``parse_address`` reads it; a secret."""
        if not self.user:
            return str(self)
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return str(self).replace("mqtt://", f"mqtt://{login}@", 1)

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
    """Return the address in ``mqtt://[USER:PASSWORD@]HOST[:PORT]``.

    A character of user or password that an address cannot hold is written as ``%`` and its code.

    Raises:
        UsageError: it is not of that form, or asks for TLS.
    """
    asked = tls_in(url)
    if asked:
        told = f"The address '{without_password(url)}' {asked}."
        raise UsageError(told, code="broker.tls", hint=TLS_HINT)
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "mqtt" or not parts.hostname or parts.path not in ("", "/") or not port:
        raise UsageError(
            f"'{without_password(url)}' is not a broker address.",
            code="broker.address",
            hint="write it as mqtt://HOST:PORT, such as mqtt://192.0.2.7:1883",
        )
    return Address(
        parts.hostname, port, unquote(parts.username or ""), unquote(parts.password or "")
    )


def tls_in(url: str) -> str:
    """Return how an address asks for TLS, as the end of a sentence; empty when it does not."""
    try:
        parts = urlsplit(url)
        scheme, port = parts.scheme, parts.port
    except ValueError:
        return ""
    if scheme == "mqtts":
        return "asks for TLS (mqtts://), which is not supported yet"
    if scheme == "mqtt" and port == TLS_PORT:
        return f"names the port of MQTT over TLS ({TLS_PORT}), which is not supported yet"
    return ""


def without_password(url: str) -> str:
    """Return the text of an address as it may be shown."""
    scheme, mark, rest = url.partition("://")
    login, at, host = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    return f"{scheme}{mark}{user}:…@{host}" if at and colon else url
