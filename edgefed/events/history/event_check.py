"""Check the values of an event from a file, so that values to draw have known types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgefed.events.base.device_columns import roster_rows
from edgefed.events.base.evaluation_views import ConfusionView
from edgefed.events.base.model import Event, EventKind
from edgefed.events.base.snapshot import (
    DeviceRoundView,
    DeviceSnapshot,
    RoundView,
    RunView,
)
from edgefed.events.base.view import View
from edgefed.events.state.lines import describe

Fields = Mapping[str, Any]


def check_event(event: Event) -> None:
    """Check that the fields of an event have values that this version knows.

    Folding takes fields as they are, because a coordinator of the same version sends them; a file
    may come from a newer version, or may be damaged. Unknown fields are fine.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: a field is missing, or its value is wrong
            or unknown.
    """
    _CHECKS.get(event.kind, _nothing)(event.fields)
    describe(event)


def _nothing(fields: Fields) -> None:
    del fields


def _of_view(view: type[View], **required: Any) -> Callable[[Fields], None]:
    """Return a check by a view's types; ``required`` has its fields that an event may lack."""

    def check(fields: Fields) -> None:
        view.model_validate({**required, **fields})

    return check


def _roster(fields: Fields) -> None:
    for row in roster_rows(fields):
        DeviceSnapshot.model_validate(row)


def _reply(fields: Fields) -> None:
    row = {"round": 0, **fields, "seconds": fields.get("seconds") or 0.0}
    DeviceRoundView.model_validate(row)
    DeviceSnapshot.model_validate({"device": fields["device"], "loss": fields.get("loss")})
    RunView.model_validate({"run": "", "accepted": fields["accepted"]})


_CHECKS: dict[EventKind, Callable[[Fields], None]] = {
    "run": _of_view(RunView),
    "round": _of_view(RoundView),
    "exchange": _of_view(RunView, run=""),
    "reply": _reply,
    "scored": _of_view(RoundView),
    "device": _of_view(DeviceSnapshot),
    "roster": _roster,
    "confusion": _of_view(ConfusionView),
}
