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
    """Knows when devices were last heard of; owned by the dispatcher's thread.

    Args:
        registry: the connected devices; reports those that are silent, and the end of it.
        ping: sends a ping to a device.
    """

    def __init__(self, registry: DeviceRegistry, ping: Callable[[str], None]) -> None:
        self._registry = registry
        self._ping = ping
        self._heard: dict[str, float] = {}
        self._pinged: dict[str, float] = {}
        self._silent: set[str] = set()

    def hear(self, device: str, now: float) -> None:
        """Note a message of a device."""
        self._heard[device] = now
        self._pinged.pop(device, None)
        if device in self._silent:
            self._silent.discard(device)
            self._registry.note_heard(device)

    def forget(self, device: str) -> None:
        """Forget a device that is not connected any more."""
        self._heard.pop(device, None)
        self._pinged.pop(device, None)
        self._silent.discard(device)

    def reconnected(self, now: float) -> None:
        """Count the time anew: nothing could be heard while the broker was away."""
        self._heard = dict.fromkeys(self._heard, now)
        self._pinged.clear()

    def check(self, awaited: Iterable[str], until: float) -> None:
        """Ping the awaited devices that are not heard of, and tell of those that do not answer.

        Args:
            awaited: devices of which an open exchange waits for an answer.
            until: monotonic second up to which all messages were taken.
        """
        for device in awaited:
            unheard = until - self._heard.setdefault(device, until)
            if unheard < PING_AFTER or device in self._silent or not self._registry.online(device):
                continue
            pinged = self._pinged.get(device)
            if pinged is None:
                self._pinged[device] = until
                self._ping(device)
            elif until - pinged >= ANSWER_WITHIN:
                self._silent.add(device)
                self._registry.note_silent(device, unheard)
