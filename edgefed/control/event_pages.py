"""Pages of the coordinator's event log."""

from __future__ import annotations

from pydantic import ValidationError

from edgefed.control.coordinator_client import CoordinatorClient
from edgefed.errors import WireError
from edgefed.events.base.event_entries import PAGE, EventFilter, EventPage


def event_page(
    coordinator: CoordinatorClient,
    wanted: EventFilter,
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int = PAGE,
) -> EventPage:
    """Return a page of the event log, as ``StoredEvents.page`` of the coordinator does.

    Raises:
        UnreachableError: there is no answer.
        WireError: the answer is invalid.
        EdgeFedError: the coordinator's own error.
    """
    asked = wanted.model_dump(mode="json")
    body = coordinator.ask("events", filter=asked, before=before, after=after, limit=limit)
    try:
        return EventPage.model_validate(body)
    except ValidationError as error:
        raise WireError("The coordinator's response is invalid.") from error
