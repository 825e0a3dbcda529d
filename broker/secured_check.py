"""Connections of a rule check to a secured broker, with each available identity."""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from broker.listeners import Listener
from broker.probe import Probe
from edgefed.config.values.address import Address
from edgefed.errors import EdgeFedError
from edgefed.trust.credentials import Credentials
from edgefed.wire.topics import CLIENT_ID_PREFIX, CLIENT_SLOTS, Topics


class ProbeParties(Protocol):
    """Credentials for the check alone, which the broker accepts until they are withdrawn."""

    @property
    def devices(self) -> tuple[Credentials, Credentials]:
        """Two devices."""
        ...

    @property
    def viewer(self) -> Credentials:
        """A viewer."""
        ...

    def withdraw(self) -> None:
        """Revoke the first device and take its rules away, as the removal of a device does."""
        ...


class SecuredCheck:
    """One check of one broker.

    Args:
        address: of the devices' listener.
        own: credentials of the checking party: an operator, a viewer or the coordinator.
        parties: None where the fleet's authority is not on this machine.
        timeout: seconds for every single answer.
        now: for the certificate of another authority.
        monotonic: seconds that never go back.
    """

    def __init__(
        self,
        address: Address,
        own: Credentials,
        parties: ProbeParties | None,
        timeout: float,
        now: datetime,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address, self.own, self.timeout, self.now = address, own, timeout, now
        self.monotonic = monotonic
        self._parties = parties
        self.topics = Topics(own.fleet)
        self.root = self.topics.root

    @property
    def has_parties(self) -> bool:
        """Whether devices and a viewer can be tried."""
        return self._parties is not None

    @property
    def parties(self) -> ProbeParties:
        """The credentials of this check."""
        assert self._parties is not None
        return self._parties

    def at(self, listener: Listener) -> Address:
        """Return the address of a listener."""
        return replace(self.address, port=self.address.port + listener.offset)

    def connect(
        self,
        who: Credentials | None,
        listener: Listener,
        client_id: str = "",
        *,
        user: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> Probe:
        """Connect; without credentials, as an anonymous client."""
        return Probe(
            replace(self.at(listener), user=user),
            self.timeout,
            client_id or CLIENT_ID_PREFIX + secrets.token_hex(16),
            tls=tls or (who.tls_context() if who else self.anonymous()),
        )

    def anonymous(self) -> ssl.SSLContext:
        """Return a context without a certificate of one's own."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.own.authority.pem().decode())
        return context

    def is_admitted(self, listener: Listener, who: Credentials | None, **options: Any) -> bool:
        """Whether a connection is accepted."""
        with suppress(EdgeFedError), closing(self.connect(who, listener, **options)):
            return True
        return False

    def own_check_topic(self) -> str:
        """Return a topic that the checking party may write and read."""
        return self.topics.check(self.own.certificate.user, secrets.randbelow(CLIENT_SLOTS))
