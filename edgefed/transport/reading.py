"""Parse what arrived as a message, or return the reason why it is invalid."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.errors import WireError
from edgefed.transport.link import Incoming
from edgefed.wire.envelope import decode
from edgefed.wire.messages import Message
from edgefed.wire.topics import ParsedTopic, Topics


def read_arrival(
    topics: Topics, arrival: Incoming, refuse: Callable[[ParsedTopic, str], None]
) -> tuple[ParsedTopic, Message] | None:
    """Return where a message came and what it says.

    Args:
        topics: of the fleet.
        arrival: what the broker delivered.
        refuse: told about a payload that is not what its topic carries.

    Returns:
        None for what is refused, for topics that are not ours, and for the empty payload that
        clears a retained message.
    """
    parsed = topics.parse(arrival.topic)
    if parsed is None or not arrival.payload:
        return None
    try:
        return parsed, decode(arrival.payload, parsed.spec.message)
    except WireError as error:
        refuse(parsed, error.message)
        return None
