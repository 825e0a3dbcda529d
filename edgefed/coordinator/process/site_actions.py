"""Requests about the gateways of a fleet, which viewers may send, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.devices.sites import Sites
from edgefed.coordinator.process.request_actions import Nothing, RequestAction


def site_actions(sites: Sites, registry: DeviceRegistry) -> Mapping[str, RequestAction]:
    """Return the actions about gateways, by name."""

    def read(arguments: Nothing) -> list[dict[str, Any]]:
        del arguments
        return [
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

    return {"gateways": RequestAction(Nothing, read)}
