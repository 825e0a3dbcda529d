"""Say on the wire that an agent does not start because it cannot use its data."""

from __future__ import annotations

import secrets
from contextlib import suppress

from device_agent.reports.publisher import Publisher
from edgefed.config.values.address import Address
from edgefed.errors import EdgeFedError
from edgefed.events.base.coordinator_states import REFUSED_DATA
from edgefed.transport.link import Link
from edgefed.wire.messages import Birth
from edgefed.wire.topics import Topics

WAIT = 3.0
"""Seconds in which the broker has to answer; without it the agent ends in silence."""


def refused_data(error: EdgeFedError) -> str:
    """Return the reason of a device that cannot use its data, with the error's code."""
    return f"{REFUSED_DATA}: {error.message}  [{error.code}]"[:1000]


def publish_refusal(address: Address, fleet: str, device: str, error: EdgeFedError) -> None:
    """Publish why a device does not join, if its broker answers.

    The birth introduces the certificate with which the reason is signed. It is not retained, and
    an agent of this name that is at work goes on.
    """
    gone = Birth(session=secrets.token_hex(8), status="lost")
    name = f"edgefed-{fleet}-{device}-{secrets.token_hex(8)}"
    with suppress(EdgeFedError):
        link = Link(address.for_commands(), name, lambda arrival: None)
        link.start_now(WAIT)
        try:
            Publisher(link, Topics(fleet), device).refusal(gone, refused_data(error))
        finally:
            link.stop()
