"""Messages from other threads to the app."""

from __future__ import annotations

from textual.message import Message

from edgefed.events.feed_update import FeedUpdate
from edgefed.tui.orders import Order


class Fresh(Message):
    """A new update from the feed; a newer one replaces it while it waits."""

    def __init__(self, update: FeedUpdate) -> None:
        super().__init__()
        self.update = update

    def can_replace(self, message: Message) -> bool:
        """Return whether this message may take the place of one that was not handled yet."""
        return isinstance(message, Fresh)


class Answered(Message):
    """The coordinator answered an order, or could not be asked."""

    def __init__(self, order: Order, error: Exception | None = None) -> None:
        super().__init__()
        self.order = order
        self.error = error
