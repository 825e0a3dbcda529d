"""The three listeners of a secured broker, numbered from one port."""

from __future__ import annotations

from dataclasses import dataclass

from edgefed.config.address import COMMANDS_OFFSET, ENROLMENT_OFFSET


@dataclass(frozen=True)
class Listener:
    """One port of the broker.

    Attributes:
        offset: from the port in the fleet's address.
        purpose: who connects there; a comment in the configuration.
        certificate: whether clients must have a certificate of the fleet.
        one_connection: whether a certificate has one connection: the broker takes its common name
            as the client id, so that nobody can take another's connection over, and a newer
            connection of the same certificate ends the older one.
        max_connections: beyond it, the broker accepts nobody.
    """

    offset: int
    purpose: str
    certificate: bool
    one_connection: bool
    max_connections: int


DEVICES = Listener(
    0, "Devices and the coordinator: one connection a certificate.", True, True, 2000
)
ENROLMENT = Listener(
    ENROLMENT_OFFSET,
    "Enrolment: no certificate, and no topic but the client's own.",
    False,
    False,
    32,
)
COMMANDS = Listener(
    COMMANDS_OFFSET, "Commands and dashboards: several connections a certificate.", True, False, 256
)
LISTENERS = (DEVICES, ENROLMENT, COMMANDS)
