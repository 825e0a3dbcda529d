"""The entry of the event log for an event."""

from __future__ import annotations

from typing import Any

from edgefed.events.base.event_entries import EventEntry
from edgefed.events.base.model import Event
from edgefed.events.state.lines import describe

_PROBLEM_MARKS = "✗■!◷◌"

_CHANGES = {
    "forgotten": "forgotten",
    "renewed": "renewed",
    "returned": "returned",
    "joined": "joined",
    "data_refused": "refused its data",
    "data_changed": "changed its data",
}
"""Fields of a ``device`` event, and the outcome that they stand for; the first one counts."""


def entry_of(event: Event) -> EventEntry | None:
    """Return the entry of an event; None for an event too small for the log."""
    line = describe(event)
    if line is None:
        return None
    fields, outcome = event.fields, _outcome(event)
    return EventEntry(
        time=event.time,
        kind=event.kind,
        outcome=outcome,
        device=_device(event),
        by=str(fields.get("by", "")) if event.kind == "order" else "",
        run=str(fields.get("run", "")),
        problem=line.mark in _PROBLEM_MARKS or (event.kind == "run" and outcome == "failed"),
        routine=line.routine,
        mark=line.mark,
        text=line.text,
        since=str(fields.get("since", "")) if event.kind == "note" else "",
    )


def _outcome(event: Event) -> str:
    fields = event.fields
    match event.kind:
        case "reply" | "order":
            return str(fields["outcome"])
        case "run":
            return str(fields.get("status", ""))
        case "device":
            return _outcome_of_device(fields)
        case "scored":
            return "round"
        case "alert" if fields["over"]:
            return "over"
        case "note" if fields.get("since"):
            return "outage"
        case "note" if fields.get("level") == "warning":
            return "warning"
    return ""


def _outcome_of_device(fields: dict[str, Any]) -> str:
    if fields.get("state") in ("lost", "paused", "failed"):
        return str(fields["state"])
    changes = (word for field, word in _CHANGES.items() if field in fields)
    return next(changes, str(fields.get("standing", "")))


def _device(event: Event) -> str:
    """Return the device that an event is about, or that an order names."""
    fields = event.fields
    if event.kind == "order":
        return str(fields.get("about", "")) if fields["action"].startswith("device.") else ""
    device = fields.get("device", "")
    return device if isinstance(device, str) else ""
