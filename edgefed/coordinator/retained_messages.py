"""Delete from the broker what others had it retain and nobody reads."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.transport.link import Arrival, Incoming
from edgefed.wire.topics import Topics


class RetainedMessages:
    """Passes on what arrives, and deletes retained messages that should not be.

    Those are messages on topics that retain none, and births of devices that are not enrolled. The
    broker hands them over when the coordinator subscribes. They are passed on all the same: who
    reads them knows that they are old. Empty messages, by which retained ones are deleted, say
    nothing, and are not passed on.

    Args:
        topics: of the fleet.
        enrolled: whether a device is enrolled.
        clear: deletes what is retained on a topic.
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
        """Take what a link delivers."""
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
