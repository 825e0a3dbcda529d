"""Messages to the app from other threads and from screens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual.message import Message

from edgefed.events.history.recording import Recording
from edgefed.events.state.feed_update import FeedUpdate


class Fresh(Message):
    """A new update from the feed; a newer one replaces it while it waits."""

    def __init__(self, update: FeedUpdate) -> None:
        super().__init__()
        self.update = update

    def can_replace(self, message: Message) -> bool:
        """Return whether this message may take the place of one that was not handled yet."""
        return isinstance(message, Fresh)


@dataclass(frozen=True)
class CoordinatorRequest:
    """A request to the coordinator, which may take long.

    Attributes:
        ask: sends it and waits, in a thread of its own; returns the message for the user.
        failed: heading of an error that is not EdgeFed's own, such as ``Could not pause r-1.``
    """

    ask: Callable[[], str]
    failed: str


class ThreadDone(Message):
    """A thread has finished; the app continues in its own thread."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self.then = then


class Loaded(Message):
    """A dialog for which keys have waited is there, or it could not be made."""

    def __init__(self, *, ok: bool) -> None:
        super().__init__()
        self.ok = ok


class ReplayChosen(Message):
    """A recording to replay in place of the dashboard, which is opened again afterwards."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording


class RequestWanted(Message):
    """A screen's request; the app sends it and shows the user the outcome."""

    def __init__(self, request: CoordinatorRequest) -> None:
        super().__init__()
        self.request = request


class Answered(Message):
    """A request was answered, with the message for the user, or it failed."""

    def __init__(
        self, request: CoordinatorRequest, answer: str = "", error: Exception | None = None
    ) -> None:
        super().__init__()
        self.request = request
        self.answer = answer
        self.error = error
