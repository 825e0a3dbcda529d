"""Find the awaited devices that are silent: they are pinged, and do not answer.

A connected device sends telemetry every 10 seconds. One that is awaited and not heard of for 12
seconds is pinged, as an operator pings it; without a message within 3 seconds it is silent until
one comes. Nothing is decided by this: a silent device is asked like any other. Every agent of this
version of the protocol answers pings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from edgefed.coordinator.devices.device_registry import DeviceRegistry

PING_AFTER = 12.0
"""Seconds without a message after which an awaited device is pinged."""

ANSWER_WITHIN = 3.0
"""Seconds after a ping in which a message has to come."""


class UnheardDevices:
    """Pings awaited devices, and finds those that do not answer; owned by the dispatcher's thread.

    Args:
        registry: knows when devices were last heard of.
        ping: sends a ping to a device.
    """

    def __init__(self, registry: DeviceRegistry, ping: Callable[[str], None]) -> None:
        self._registry = registry
        self._ping = ping
        self._pinged: dict[str, float] = {}

    def check(self, awaited: Iterable[str], until: float) -> None:
        """Ping the awaited devices that are not heard of, and tell of those that do not answer.

        Args:
            awaited: devices of which an open exchange waits for an answer.
            until: monotonic second up to which all messages were taken.
        """
        before, self._pinged = self._pinged, {}
        for device in awaited:
            heard = self._registry.unheard_since(device, until)
            if heard is None or until - heard < PING_AFTER:
                continue
            pinged = before.get(device, heard)
            if pinged <= heard:  # it was not pinged since, or it has answered
                self._pinged[device] = until
                self._ping(device)
                continue
            self._pinged[device] = pinged
            if until - pinged >= ANSWER_WITHIN:
                self._registry.note_silent(device, until - heard)
