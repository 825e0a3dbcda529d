"""Emit each order as an event, with its sender and outcome."""

from __future__ import annotations

from typing import Any

from edgefed.coordinator.event_journal import EventJournal
from edgefed.errors import EdgeFedError
from edgefed.wire.messages import Request

MAX_ABOUT = 80
"""Most characters of ``about``, which the sender of an order chooses."""

UNKNOWN_USER = "somebody"

_ABOUT = ("run", "device", "user", "users", "name")
"""Arguments, and fields of an answer, that say what an order is about; the first one counts."""


def note_order(
    journal: EventJournal, request: Request, by: str, body: Any, problem: EdgeFedError | None
) -> None:
    """Emit the event of an order.

    Args:
        journal: takes the event.
        request: the order.
        by: the user that gave it.
        body: the body of the answer.
        problem: the error of an order that was refused; None if it was taken.
    """
    arguments = request.arguments
    action = arguments.get("action")  # of a run.order: pause, resume and so on
    journal.emit(
        "order",
        action=f"{request.action} {action}" if isinstance(action, str) else request.action,
        by=by or UNKNOWN_USER,
        about=_about(arguments) or _about(body),
        outcome="taken" if problem is None else "refused",
        reason="" if problem is None else problem.message,
    )


def _about(told: Any) -> str:
    if not isinstance(told, dict):
        return ""
    found = next((told[name] for name in _ABOUT if told.get(name)), "")
    if isinstance(found, list):
        found = ", ".join(map(str, found))
    return str(found)[:MAX_ABOUT] if isinstance(found, (str, int)) else ""
