"""Check that the broker forwards this device's messages, which access rules drop silently.

A device reads its own birth topic, so it hears its own birth. If it does not, its broker user may
not write as this device: the coordinator never sees the device, although it is connected.
"""

from __future__ import annotations

import math
import secrets
import threading

from edgefed.config.values.address import Address
from edgefed.errors import NotAllowedError
from edgefed.transport.inbox import Arrival, Incoming, Subscribed
from edgefed.transport.link import Link
from edgefed.wire.messages import Birth
from edgefed.wire.topics import Topics

WAIT = 5.0
"""Seconds in which a birth should have come back."""

REPEAT = 30.0
"""Seconds between two births that nobody passed on; the rules may have been corrected."""


class PresenceCheck:
    """Watches whether our birth comes back; owned by one thread.

    Args:
        session: ours.

    Attributes:
        next_due: the monotonic second at which ``missed`` is true; ``math.inf`` for never.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self.next_due = math.inf
        self.silent = False

    def connected(self, now: float) -> None:
        """Note that our birth was published over a new connection."""
        self.next_due, self.silent = now + WAIT, False

    def disconnected(self) -> None:
        """Expect nothing while the broker is away."""
        self.next_due = math.inf

    def heard(self, birth: Birth) -> bool:
        """Take a birth on our topic; True if it ends a silence."""
        if birth.session != self._session or birth.status != "online":
            return False
        ended, self.next_due, self.silent = self.silent, math.inf, False
        return ended

    def missed(self, now: float) -> bool:
        """Whether the birth is overdue; it is due again after ``REPEAT``."""
        if now < self.next_due:
            return False
        self.next_due = now + REPEAT
        return True


def unheard(address: Address, fleet: str, device: str) -> NotAllowedError:
    """Return the error for a broker that drops this device's messages."""
    user = f"user {address.user}" if address.user else "a client without a login"
    if address.tls:
        user = "the holder of its certificate"
    command = f"edgefed broker config --acl --fleet {fleet}"
    rules = f"let {user} write the topics of device {device}: {command}"
    if address.user not in ("", device):
        rules = f"give the device the name of its user, --name {address.user}; or {rules}"
    if address.tls:
        rules = (
            "name the port of devices in --broker, not that of enrolment or of commands; "
            "on the coordinator's machine: edgefed broker check"
        )
    return NotAllowedError(
        f"The broker at {address} drops messages of device {device} of fleet {fleet} "
        f"published as {user}; the coordinator cannot see this device.",
        code="device.unheard",
        hint=rules,
    )


def check_presence(address: Address, fleet: str, device: str, timeout: float = WAIT) -> None:
    """Check that the broker forwards a device's messages, without announcing the device.

    An empty payload that is not retained means nothing to the coordinator; an agent that is at work
    answers it with its birth.

    Raises:
        UnreachableError: there is no broker.
        NotAllowedError: it refuses the login, or drops the message.
    """
    topic = Topics(fleet).birth(device)
    subscribed, heard = threading.Event(), threading.Event()

    def take(arrival: Arrival) -> None:
        match arrival:
            case Subscribed():
                subscribed.set()
            case Incoming(payload=b"", retained=False):
                heard.set()

    client = f"edgefed-doctor-{secrets.token_hex(4)}"
    link = Link(address.for_commands(), client, take, subscriptions=(topic,))
    link.start_now(timeout)
    try:
        subscribed.wait(timeout)
        link.publish(topic, b"")
        if not heard.wait(timeout):
            raise unheard(address, fleet, device)
    finally:
        link.stop()
