"""As which device this machine is enrolled, where the settings do not say."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from edgefed.config.load import Loaded
from edgefed.config.settings import AgentSettings
from edgefed.errors import UsageError
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
    """
    settings = loaded.value
    if settings.name is not None and "fleet" in loaded.layer.values:
        return loaded
    if settings.broker is not None and not settings.broker.startswith("mqtts://"):
        return loaded
    fleet = settings.fleet if "fleet" in loaded.layer.values else ""
    found = [
        each
        for each in _devices(settings.state)
        if fleet in ("", each.fleet) and settings.name in (None, each.name)
    ]
    if not found:
        return loaded
    if len(found) > 1:
        names = ", ".join(f"{each.name} of {each.fleet}" for each in found)
        raise UsageError(
            f"This machine is enrolled as {names}.",
            code="enrol.several",
            hint="choose one: edgefed-agent run --fleet FLEET --name NAME",
        )
    chosen = settings.model_copy(update={"name": found[0].name, "fleet": found[0].fleet})
    return replace(loaded, value=chosen)


def _devices(state: Path) -> list[_Enrolled]:
    """Return the devices that have credentials in a state folder, sorted."""
    found = []
    for path in sorted((state / "trust").glob(f"*/*/{FLEET}")):
        fleet, name = path.parts[-3:-1]
        if not fleet.startswith(".") and not name.startswith(".") and _is_device(path):
            found.append(_Enrolled(fleet, name))
    return found


def _is_device(path: Path) -> bool:
    try:
        told = json.loads(path.read_bytes())
        return isinstance(told, dict) and told.get("role") == "device"
    except (OSError, ValueError, RecursionError):
        return False
