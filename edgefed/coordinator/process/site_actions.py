"""Requests about the gateways of a fleet, which viewers may send, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.devices.sites import Sites
from edgefed.coordinator.process.request_actions import Nothing, RequestAction

_NEVER = {"name": "", "site": "", "state": "", "devices": 0, "online": 0, "samples": 0}
"""A gateway that has not connected to this coordinator process."""


def site_actions(
    sites: Sites,
    registry: DeviceRegistry,
    members: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
) -> Mapping[str, RequestAction]:
    """Return the actions about gateways, by name.

    Args:
        sites: the gateways that have connected.
        registry: knows which devices are online.
        members: returns the rows of the fleet's members, gateways among them.
    """

    def read(arguments: Nothing) -> list[dict[str, Any]]:
        del arguments
        connected = [
            {
                "name": gateway,
                "site": site,
                "state": "online" if sites.session(gateway) else "lost",
                "devices": len(samples),
                "online": sum(registry.online(device) for device in samples),
                "samples": sum(samples.values()),
            }
            for gateway, site, samples in sites.all()
        ]
        names = {row["name"] for row in connected}
        others = [
            {**_NEVER, "name": row["name"], "state": row["state"]}
            for row in members()
            if row["role"] == "gateway" and row["name"] not in names
        ]
        rows = sorted([*connected, *others], key=lambda row: str(row["name"]))
        for row in rows:
            row["most_devices"], row["most_samples"] = sites.limits(row["name"])
        return rows

    return {"gateways": RequestAction(Nothing, read)}
