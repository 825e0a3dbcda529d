"""Requests for pages of the event log, which viewers may send, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from edgefed.coordinator.journal.stored_events import StoredEvents
from edgefed.coordinator.process.request_actions import Arguments, RequestAction
from edgefed.events.base.event_entries import PAGE, EventFilter

Position = Annotated[int, Field(ge=0, le=2**53)]


class _Events(Arguments):
    filter: EventFilter = EventFilter()
    before: Position | None = None
    """None for the end of the log."""
    after: Position | None = None
    """The position from which to read on; None to read backwards."""
    limit: Annotated[int, Field(ge=1, le=PAGE)] = PAGE


def event_actions(events: StoredEvents) -> Mapping[str, RequestAction]:
    """Return the actions about the event log, by name."""

    def read(arguments: _Events) -> dict[str, Any]:
        page = events.page(
            arguments.filter,
            before=arguments.before,
            after=arguments.after,
            limit=arguments.limit,
        )
        return page.model_dump(mode="json")

    return {"events": RequestAction(_Events, read)}
