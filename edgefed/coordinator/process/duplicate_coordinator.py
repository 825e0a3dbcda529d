"""Check at start that the fleet has no other coordinator."""

from __future__ import annotations

import secrets
import time
from typing import NoReturn

from edgefed.config.values.address import Address
from edgefed.errors import NotAllowedError
from edgefed.process.clock import SystemClock
from edgefed.transport.inbox import Inbox, Incoming, Subscribed, read_arrival
from edgefed.transport.link import Link
from edgefed.trust.signatures import Verifier
from edgefed.wire.messages import CoordinatorState
from edgefed.wire.topics import Topics

LISTEN = 0.3
"""Seconds to wait, after the subscription holds, for a retained state to come."""


def refuse_second_coordinator(address: Address, topics: Topics, owner: str) -> None:
    """Raise an error if another coordinator is online in the fleet.

    The retained state of a coordinator that was killed is replaced by its will, and one of the same
    state directory is a previous process of ours, since the directory is locked.

    Raises:
        NotAllowedError: there is one.
        UnreachableError: there is no broker.
    """
    state = retained_state(address, topics)
    if state is not None and state.status == "online" and state.owner != owner:
        raise NotAllowedError(
            f"Fleet {topics.fleet} already has a coordinator or gateway"
            f" (session {state.session[:8]}).",
            code="coordinator.taken",
            hint="stop that one, or choose another fleet with --fleet",
        )


def retained_state(
    address: Address, topics: Topics, timeout: float = 10.0
) -> CoordinatorState | None:
    """Return the last retained state of the fleet's coordinator, or None if there is none."""
    inbox: Inbox[NoReturn] = Inbox(SystemClock())
    link = Link(
        address.for_commands(),
        f"edgefed-look-{secrets.token_hex(4)}",
        inbox.put,
        subscriptions=(topics.coordinator(),),
    )
    link.start_now(timeout)
    try:
        own = address.credentials
        verifier = None if own is None else Verifier(own.authority)
        return _listen(inbox, time.monotonic() + timeout, topics, verifier)
    finally:
        link.stop()


def _listen(
    inbox: Inbox[NoReturn], until: float, topics: Topics, verifier: Verifier | None
) -> CoordinatorState | None:
    while time.monotonic() < until:
        arrival = inbox.get(timeout=max(0.01, until - time.monotonic()))
        if arrival is None:
            return None
        if isinstance(arrival, Subscribed):
            until = min(until, time.monotonic() + LISTEN)
        if isinstance(arrival, Incoming) and arrival.payload:
            read = read_arrival(topics, arrival, lambda topic, reason: None, verifier)
            if read is not None and isinstance(read.message, CoordinatorState):
                return read.message
    return None
