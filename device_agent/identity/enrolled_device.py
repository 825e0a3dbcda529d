"""The enrolled device of this machine, where the settings do not name it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from edgefed.config.fleet.settings import AgentSettings
from edgefed.config.loading.load import Loaded
from edgefed.errors import NotAllowedError, UsageError
from edgefed.trust.credentials import FLEET


@dataclass(frozen=True)
class _Enrolled:
    """A folder with a device's credentials."""

    fleet: str
    name: str


def with_enrolment(loaded: Loaded[AgentSettings]) -> Loaded[AgentSettings]:
    """Return settings with the name and fleet of the credentials on this machine.

    They count where name and fleet are not set, and only if no broker without TLS is set.

    Raises:
        UsageError: ``enrol.several``: more than one set of credentials fits.
        NotAllowedError: ``trust.missing``: none fits, and no broker is set.
    """
    settings = loaded.value
    if settings.broker is not None and not settings.broker.startswith("mqtts://"):
        return loaded
    fleet = settings.fleet if "fleet" in loaded.layer.values else ""
    enrolled = _devices(settings.state)
    matches = [
        device
        for device in enrolled
        if fleet in ("", device.fleet) and settings.name in (None, device.name)
    ]
    if not matches and enrolled and settings.broker is None:
        raise _enrolled_elsewhere(settings, fleet, enrolled)
    if not matches or (settings.name is not None and fleet):
        return loaded
    if len(matches) > 1:
        names = ", ".join(f"{device.name} of {device.fleet}" for device in matches)
        raise UsageError(
            f"This machine is enrolled as {names}.",
            code="enrol.several",
            hint="choose one: edgefed-agent run --fleet FLEET --name NAME",
        )
    chosen = settings.model_copy(update={"name": matches[0].name, "fleet": matches[0].fleet})
    return replace(loaded, value=chosen)


def _enrolled_elsewhere(
    settings: AgentSettings, fleet: str, enrolled: list[_Enrolled]
) -> NotAllowedError:
    """Return the error for a machine whose credentials are of other fleets or names."""
    names = ", ".join(f"{device.name} of fleet {device.fleet}" for device in enrolled)
    asked = f"device {settings.name}" if settings.name else "a device"
    return NotAllowedError(
        f"This machine is enrolled as {names}, and not as {asked} of fleet {fleet or 'any'}.",
        code="trust.missing",
        hint="check --fleet and --name; for a fleet without certificates, name its broker with"
        " --broker",
    )


def _devices(state: Path) -> list[_Enrolled]:
    """Return the devices that have credentials in a state folder, sorted."""
    devices = []
    for path in sorted((state / "trust").glob(f"*/*/{FLEET}")):
        fleet, name = path.parts[-3:-1]
        if not fleet.startswith(".") and not name.startswith(".") and _is_device(path):
            devices.append(_Enrolled(fleet, name))
    return devices


def _is_device(path: Path) -> bool:
    try:
        fields = json.loads(path.read_bytes())
        return isinstance(fields, dict) and fields.get("role") == "device"
    except (OSError, ValueError, RecursionError):
        return False
