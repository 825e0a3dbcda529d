"""Requests of operators about single devices: orders, pings, and lines of their logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field

from edgefed.coordinator.devices.connected_minutes import Presence
from edgefed.coordinator.devices.device_diagnostics import DeviceDiagnostics
from edgefed.coordinator.devices.device_orders import DeviceOrders
from edgefed.coordinator.process.request_actions import Arguments, Nothing, RequestAction
from edgefed.wire.limits import MAX_LOG_LINES, MAX_PAUSE_REASON

MAX_DEVICES = 4096
"""Most devices that one request names."""

MAX_SECONDS = 60.0
"""Longest time to wait for devices."""

Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]


class _Forget(Arguments):
    device: str
    """Empty for every lost device."""


class _OneDevice(Arguments):
    device: str


class _Pause(Arguments):
    device: str
    reason: Annotated[str, Field(max_length=MAX_PAUSE_REASON)] = ""


class _Ping(Arguments):
    devices: Annotated[list[str], Field(default_factory=list, max_length=MAX_DEVICES)]
    """Empty for every device."""
    timeout: Seconds = 5.0


class _Log(Arguments):
    device: str
    lines: Annotated[int, Field(ge=1, le=MAX_LOG_LINES)] = MAX_LOG_LINES
    after: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """Number of the last line that is known; None for the newest lines."""
    timeout: Seconds = 5.0


def device_actions(
    orders: DeviceOrders, diagnostics: DeviceDiagnostics, presence: Presence
) -> Mapping[str, RequestAction]:
    """Return the actions about devices, by name."""
    actions = _Actions(orders, diagnostics)
    return {
        "device.forget": RequestAction(_Forget, actions.forget, order=True),
        "device.pause": RequestAction(_Pause, actions.pause, order=True, by_user=True),
        "device.resume": RequestAction(_OneDevice, actions.resume, order=True),
        "device.quarantine": RequestAction(
            _OneDevice, actions.quarantine, order=True, by_user=True
        ),
        "device.release": RequestAction(_OneDevice, actions.release, order=True),
        "device.presence": RequestAction(Nothing, lambda arguments: presence.shares()),
        "device.ping": RequestAction(_Ping, actions.ping, costly=True),
        "device.log": RequestAction(_Log, actions.log, costly=True),
    }


class _Actions:
    def __init__(self, orders: DeviceOrders, diagnostics: DeviceDiagnostics) -> None:
        self._orders = orders
        self._diagnostics = diagnostics

    def forget(self, arguments: _Forget) -> dict[str, Any]:
        return {"forgotten": self._orders.forget(arguments.device)}

    def pause(self, arguments: _Pause, by: str) -> dict[str, Any]:
        self._orders.pause(arguments.device, by, arguments.reason)
        return {"paused": arguments.device}

    def resume(self, arguments: _OneDevice) -> dict[str, Any]:
        self._orders.resume(arguments.device)
        return {"resumed": arguments.device}

    def quarantine(self, arguments: _OneDevice, by: str) -> dict[str, Any]:
        self._orders.quarantine(arguments.device, by)
        return {"quarantined": arguments.device}

    def release(self, arguments: _OneDevice) -> dict[str, Any]:
        self._orders.release(arguments.device)
        return {"released": arguments.device}

    def ping(self, arguments: _Ping) -> list[dict[str, Any]]:
        results = self._diagnostics.ping(arguments.devices, arguments.timeout)
        return [asdict(result) for result in results]

    def log(self, arguments: _Log) -> dict[str, Any]:
        device, lines = arguments.device, arguments.lines
        tail = self._diagnostics.log(device, lines, arguments.after, arguments.timeout)
        return tail.model_dump(include={"session", "first", "lines"})
