"""Settings of alerts: their conditions, and their receivers."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field

from edgefed.config.recipes.sections import Section

WEBHOOK_PATTERN = r"^https?://[A-Za-z0-9.:\[\]_-]+([/?][!-~]*)?$"
"""An address that can be posted to as it is: an error about a character of it would show it."""

ALERT_PARTS = ("NAME", "TEXT", "FLEET", "RUN", "TIME")
"""Ends of the names of the variables ``EDGEFED_ALERT_*`` that the command of an alert is given."""


class AlertSettings(Section):
    """When the coordinator alerts its operator, and how; a run that fails always counts."""

    command: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=4096)], ...], Field(max_length=64)
    ] = ()
    """A program and its arguments, which the coordinator starts for each alert, without a shell. It
    reads the alert as JSON from its standard input. By default, none."""

    webhook: Annotated[str, Field(max_length=2048, pattern=WEBHOOK_PATTERN)] | None = None
    """An address, ``https://…`` or ``http://…``, to which the coordinator posts each alert as JSON.
    By default, none."""

    lost_share: Annotated[float, Field(ge=0, le=1)] = 0.3
    """The fraction of the known devices from which lost ones are an alert; 0 for never. Devices
    that an operator has paused do not count."""

    round_seconds: Annotated[float, Field(ge=0, le=30 * 86400)] = 0.0
    """Seconds without a finished round after which a run that is not paused is an alert; 0 for
    never."""

    bell: bool = True
    """Whether the dashboard rings the terminal's bell for an alert."""


def without_path(webhook: str) -> str:
    """Return a webhook's address for display; the part after its host may be a secret."""
    parts = urlsplit(webhook)
    return f"{parts.scheme}://{parts.netloc}/…"
