"""The sharing policy of a device's owner."""

from __future__ import annotations

from dataclasses import fields

from edgefed.config.fleet.settings import AgentSettings
from edgefed.sharing.policy import Policy


def owners_policy(settings: AgentSettings) -> Policy:
    """Return the sharing policy in the settings of this device's owner."""
    return Policy(**{field.name: getattr(settings, field.name) for field in fields(Policy)})
