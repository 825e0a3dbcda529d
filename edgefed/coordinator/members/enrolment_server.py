"""The coordinator's connection to the broker for enrolment, beside that to the fleet's.

That broker is a process of its own, which strangers reach. The fleet goes on while it is away, and
the connection comes back by itself.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from edgefed.config.values.address import Address
from edgefed.transport.inbox import Arrival, Incoming, LinkDown, LinkUp
from edgefed.transport.link import Link
from edgefed.trust.enrolment_login import COORDINATOR_USER, ensure_login
from edgefed.wire.enrolment_messages import EnrolmentResponse
from edgefed.wire.topics import Topics

log = logging.getLogger(__name__)


class EnrolmentServer:
    """Receives enrolment requests, and answers them.

    Args:
        address: of the fleet's broker, with the coordinator's credentials.
        topics: of the fleet.
        trust: the folder of the fleet's certificates, with the coordinator's login.
        deliver: takes each request.

    Raises:
        StorageError: the login cannot be read.
    """

    def __init__(
        self, address: Address, topics: Topics, trust: Path, deliver: Callable[[Arrival], None]
    ) -> None:
        self._topics = topics
        self._deliver = deliver
        login = ensure_login(trust)
        self._link = Link(
            replace(address.for_enrolment(), user=COORDINATOR_USER, password=login),
            f"edgefed-enrolment-{secrets.token_hex(16)}",
            self._take,
            subscriptions=(topics.every_enrolment_request(),),
        )

    def start(self) -> None:
        """Connect in the background, and keep trying."""
        self._link.start()

    def stop(self) -> None:
        """Disconnect."""
        self._link.stop()

    def answer(self, token: str, response: EnrolmentResponse) -> None:
        """Answer the holder of a token."""
        self._link.send(self._topics.enrolment_response(token), response)

    def _take(self, arrival: Arrival) -> None:
        match arrival:
            case Incoming():
                parsed = self._topics.parse(arrival.topic)
                if parsed is not None and parsed.branch == "enrol":  # nothing else comes from there
                    self._deliver(arrival)
            case LinkUp():
                log.info("connected for enrolment")
            case LinkDown():
                log.warning(
                    "connection for enrolment lost: %s; reconnecting, the fleet goes on",
                    arrival.reason,
                )
