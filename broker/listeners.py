"""The three listeners of a secured broker, numbered from one port, in two processes.

Enrolment, which admits clients without a certificate, has a Mosquitto of its own: strangers cannot
fill the memory of the fleet's broker or occupy it.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgefed.config.values.address import COMMANDS_OFFSET, ENROLMENT_OFFSET
from edgefed.wire.limits import MAX_PACKET_BYTES

ENROLMENT_PACKET_BYTES = 16 * 1024
"""Largest packet at enrolment: a request or an answer holds two certificates at most."""


@dataclass(frozen=True)
class Listener:
    """One port of the broker.

    Attributes:
        offset: from the port in the fleet's address.
        purpose: its clients; a comment in the configuration.
        certificate: whether clients must have a certificate of the fleet.
        one_connection: whether a certificate has one connection: the broker takes its common name
            as the client id, so that no client can take over another's connection, and a newer
            connection of the same certificate ends the older one.
        max_connections: beyond it, the broker accepts no client. Mosquitto 2.0 counts a connection
            that ends more than once, and therefore admits more later.
        max_packet: bytes of a packet, beyond which the connection is ended.
    """

    offset: int
    purpose: str
    certificate: bool
    one_connection: bool
    max_connections: int
    max_packet: int = MAX_PACKET_BYTES


DEVICES = Listener(
    0, "Devices and the coordinator: one connection a certificate.", True, True, 4000
)
ENROLMENT = Listener(
    ENROLMENT_OFFSET,
    "Enrolment: no certificate, and no topic but the client's own.",
    False,
    False,
    32,
    ENROLMENT_PACKET_BYTES,
)
COMMANDS = Listener(
    COMMANDS_OFFSET, "Commands and dashboards: several connections a certificate.", True, False, 256
)
FLEET = (DEVICES, COMMANDS)
"""The listeners of the fleet's broker; enrolment has another one."""

LISTENERS = (DEVICES, ENROLMENT, COMMANDS)
