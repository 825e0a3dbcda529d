"""Alerts in a snapshot: those that have begun and are not over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

AlertName = Literal["run_failed", "lost_devices", "no_round"]
"""The subject of an alert: a run that failed, a share of the devices, or the time of a round."""


class AlertView(BaseModel):
    """An alert that is not over.

    Attributes:
        alert: its subject.
        about: id of the run; empty for the fleet.
        text: the problem, without the id.
        since: UTC time at which it began.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    alert: AlertName
    about: str = ""
    text: str = ""
    since: str = ""


def with_alert(
    alerts: tuple[AlertView, ...], fields: Mapping[str, Any], time: str
) -> tuple[AlertView, ...]:
    """Return the alerts after one more event; a newer one replaces one of the same kind.

    Raises:
        KeyError, ValueError: a field of the event is missing or wrong.
    """
    others = tuple(alert for alert in alerts if alert.alert != fields["alert"])
    if fields["over"]:
        return others
    known = {name: fields[name] for name in ("alert", "about", "text")}
    return (*others, AlertView(since=time, **known))


def alert_in_words(fields: Mapping[str, Any]) -> str:
    """Return an ``alert`` event as a line of text."""
    subject = f"{fields['about']} " if fields["about"] else ""
    return f"{'alert over' if fields['over'] else 'alert'}: {subject}{fields['text']}"
