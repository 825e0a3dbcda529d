"""Events in words: lines of the event pane and the log, and entries of the event log."""

from __future__ import annotations

from typing import Any

from edgefed.events.base.alert_events import alert_in_words
from edgefed.events.base.bounty_tables import totals_in_words
from edgefed.events.base.event_entries import EventEntry
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import LineView
from edgefed.terminal.units import counted, duration, score_of, size

_MARKS = {"accepted": "✓", "rejected": "■", "late": "◷", "refused": "■", "failed": "✗"}


def describe(event: Event) -> LineView | None:
    """Return the line that the event pane shows, or None for an event too small to show."""
    fields = event.fields
    match event.kind:
        case "reply":
            mark, text = _MARKS[fields["outcome"]], _describe_reply(fields)
        case "scored":
            mark, text = "✓", _describe_round(fields)
        case "run" if fields.get("status"):
            mark, text = "·", _describe_run(fields)
        case "device" if _is_notable(fields):
            mark, text = _device_mark(fields), _describe_device(fields)
        case "roster" if "joined" in fields:
            mark, text = "·", _describe_roster(fields)
        case "labels" if "totals" in fields:
            mark, text = "·", f"label bounties: {totals_in_words(fields['totals'])}"
        case "order":
            mark, text = "›" if fields["outcome"] == "taken" else "■", _describe_order(fields)
        case "alert":
            mark, text = "·" if fields["over"] else "✗", alert_in_words(fields)
        case "note":
            mark, text = "!" if fields.get("level") == "warning" else "·", fields["text"]
        case _:
            return None
    routine = event.kind == "reply" and fields["outcome"] == "accepted"
    return LineView(time=event.time, mark=mark, text=text, routine=routine)


def _describe_run(fields: dict[str, Any]) -> str:
    reason = f": {fields['reason']}" if fields.get("reason") else ""
    return f"{fields['run']} {fields['status']}{reason}"


def _describe_reply(fields: dict[str, Any]) -> str:
    device, outcome = fields["device"], fields["outcome"]
    if outcome != "accepted":
        return f"{device}  {outcome}: {fields.get('reason') or 'no reason given'}"
    if fields.get("shared"):
        means = shared_in_words(**fields["shared"])
        return f"{device}  shared {means}, {size(fields.get('bytes', 0))}"
    parts = [f"{device}  r{fields['round']}  {size(fields.get('bytes', 0))}"]
    parts.append(f"n={fields.get('samples', 0)}")
    if fields.get("loss") is not None:
        parts.append(f"loss {fields['loss']:.3f}")
    parts.append(f"in {duration(fields.get('seconds', 0.0))}")
    return "  ".join(parts)


def shared_in_words(entries: int, group: int) -> str:
    """Return the number of averages, and the smallest number of samples behind one."""
    text = f"{counted(entries, 'entry', 'entries')} of {counted(group, 'sample')}"
    return text if entries == 1 else f"{text} or more"


def _describe_round(fields: dict[str, Any]) -> str:
    scores = score_of(fields)
    tested = f"{scores}, " if scores else ""
    late = f", {fields['late']} late" if fields.get("late") else ""
    spent = f", epsilon {fields['epsilon']:.3g}" if fields.get("epsilon") is not None else ""
    took = duration(fields.get("seconds", 0.0))
    replies = counted(fields.get("replies", 0), "reply", "replies")
    if fields.get("summed"):
        replies += f", {fields['summed']} of them in sums of sites"
    return f"round {fields['round']} done in {took}: {tested}{replies}{late}{spent}"


_LASTING = {"joined", "forgotten", "moved", "renewed", "heard", "data_refused", "data_changed"}
"""Fields of a ``device`` event that is more than a report."""


def _is_notable(fields: dict[str, Any]) -> bool:
    """Whether a device's event is more than its progress or its health."""
    lasting = not _LASTING.isdisjoint(fields)
    return lasting or fields.get("state") in ("lost", "silent", "paused", "failed")


def _device_mark(fields: dict[str, Any]) -> str:
    if "standing" in fields and "joined" not in fields:
        return "·" if fields["standing"] == "trusted" else "!"
    if "data_refused" in fields:
        return "■"
    marks = {"lost": "✗", "silent": "?", "paused": "◌", "failed": "✗"}
    return marks.get(fields.get("state", ""), "·")


def _describe_device(fields: dict[str, Any]) -> str:
    reason = f": {fields['reason']}" if fields.get("reason") else ""
    if "forgotten" in fields:
        return f"{fields['device']}  forgotten"
    if "renewed" in fields or ("joined" in fields and fields.get("state") != "lost"):
        word = "returned" if fields.get("returned") else "joined"
        word = "has other data" if "renewed" in fields else word
        return f"{fields['device']}  {word}, {counted(fields.get('samples', 0), 'sample')}"
    if "heard" in fields:
        return f"{fields['device']}  answers again"
    if "data_refused" in fields or "data_changed" in fields:
        return f"{fields['device']}  {fields['reason']}"
    if fields.get("state") == "silent":
        return f"{fields['device']}  silent: no answer to a ping"
    if "standing" in fields:
        because = f": {fields['trust_reason']}" if fields["trust_reason"] else ""
        return f"{fields['device']}  {fields['standing']}, trust {fields['trust']:.2f}{because}"
    return f"{fields['device']}  {fields['state']}{reason}"


def _describe_order(fields: dict[str, Any]) -> str:
    command = fields["action"].replace("run.order", "run").replace(".", " ")
    order = " ".join(part for part in (command, fields.get("about", "")) if part)
    because = f": {fields['reason']}" if fields.get("reason") else ""
    refused = "" if fields["outcome"] == "taken" else f", {fields['outcome']}{because}"
    return f"{fields['by']} ordered {order}{refused}"


def _describe_roster(fields: dict[str, Any]) -> str:
    samples = counted(sum(fields.get("samples", ())), "sample")
    return f"{counted(len(fields['devices']), 'device')} joined, {samples}"


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
