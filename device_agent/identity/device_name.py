"""The name of a device, and the folder of its state."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from edgefed.config.fleet.settings import AgentSettings
from edgefed.errors import UsageError


def device_name(settings: AgentSettings) -> str:
    """Return the device's name: its setting, or the host's name made fit for a topic.

    Raises:
        UsageError: the host's name has no letter or digit.
    """
    if settings.name is not None:
        return settings.name
    name = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().lower()).strip("-")[:64]
    if not name:
        raise UsageError("This host's name is not a valid device name.", hint="give --name NAME")
    return name


def agent_folder(settings: AgentSettings) -> Path:
    """Return the state directory of this device in this fleet."""
    return settings.state / "agents" / settings.fleet / device_name(settings)
