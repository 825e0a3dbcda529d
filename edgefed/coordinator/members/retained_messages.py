"""Delete unwanted retained messages from the broker."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.transport.link import Arrival, Incoming
from edgefed.wire.topics import Topics


class RetainedMessages:
    """Passes on arrivals, and deletes retained messages that should not exist.

    These are messages on topics that retain none, and births of devices that are not enrolled. The
    broker delivers them when the coordinator subscribes. They are passed on all the same: their
    readers know that they are old. Empty messages, which delete retained ones, carry no information
    and are not passed on.

    Args:
        topics: of the fleet.
        enrolled: whether a device is enrolled.
        clear: deletes the retained message of a topic.
        deliver: takes each arrival.
    """

    def __init__(
        self,
        topics: Topics,
        enrolled: Callable[[str], bool],
        clear: Callable[[str], None],
        deliver: Callable[[Arrival], None],
    ) -> None:
        self._topics = topics
        self._enrolled = enrolled
        self._clear = clear
        self._deliver = deliver

    def take(self, arrival: Arrival) -> None:
        """Handle an arrival from a link."""
        if isinstance(arrival, Incoming):
            if not arrival.payload:
                return
            if arrival.retained and self._is_stray(arrival.topic):
                self._clear(arrival.topic)
        self._deliver(arrival)

    def _is_stray(self, topic: str) -> bool:
        parsed = self._topics.parse(topic)
        if parsed is None:
            return True
        if parsed.branch == "up":
            return not parsed.spec.retained or not self._enrolled(parsed.who)
        return parsed.branch == "control"
