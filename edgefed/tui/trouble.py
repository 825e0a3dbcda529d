"""What is wrong with a device, and the order that has the worst and oldest trouble first."""

from __future__ import annotations

import math
from collections.abc import Iterable

from edgefed.events.snapshot import DeviceView
from edgefed.tui.symbols import ACTIVE, HOT
from edgefed.tui.text_format import moment

_WORKING, _IDLE = 7, 8

_OF_STATE = {"lost": 0, "failed": 1, "rejected": 2, "late": 4, "paused": 5}
"""Ranks of the states that are trouble."""

_WITHOUT_REASON = {"lost": "no heartbeat", "late": "after the deadline"}
"""What a state means when its device gave no reason."""


def trouble(device: DeviceView) -> int:
    """Return how bad a device's trouble is, 0 for the worst; working and idle devices have none."""
    working = _WORKING if device.state in (*ACTIVE, "invited") else _IDLE
    return min(
        _OF_STATE.get(device.state, working),
        2 if device.refused_at else working,
        3 if device.standing != "trusted" else working,
        6 if is_hot(device) else working,
    )


def is_hot(device: DeviceView) -> bool:
    """Whether a device is so hot that it may slow itself down."""
    return device.temperature is not None and device.temperature >= HOT


def why(device: DeviceView) -> str:
    """Return what is wrong with a device in words; empty when nothing is."""
    rank = trouble(device)
    if rank == 2:
        return device.refused_reason or device.reason or "refused"
    if rank == 3:
        return ": ".join(filter(None, (device.standing, device.trust_reason)))
    if rank == 6:
        return device.reason or f"hot: {device.temperature:.0f} °C"
    return device.reason or _WITHOUT_REASON.get(device.state, "")


def since(device: DeviceView) -> str:
    """Return the UTC time since when a device has its trouble; empty where nothing tells."""
    rank = trouble(device)
    if rank == 2 and device.refused_at:
        return device.refused_at
    if rank == 3:
        return device.trust_since
    return device.state_since if device.state in _OF_STATE else ""


def by_trouble(devices: Iterable[DeviceView], *, reverse: bool = False) -> list[DeviceView]:
    """Return the devices with the worst trouble first; of equal trouble the oldest, then by id."""
    return sorted(devices, key=_key, reverse=reverse)


def _key(device: DeviceView) -> tuple[int, float, str]:
    began = moment(since(device))
    return trouble(device), began.timestamp() if began else math.inf, device.device
