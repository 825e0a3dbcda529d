"""Filter devices by parts of their id, or by ``key:value``."""

from __future__ import annotations

from edgefed.events.snapshot import DeviceView

_FIELDS = {
    "device": "device",
    "state": "state",
    "reason": "reason",
    "hardware": "hardware",
    "agent": "agent",
}
"""Keys of a filter and the field of a device that each looks into."""


def matches(device: DeviceView, query: str) -> bool:
    """Return whether every word of ``query`` fits the device; case does not matter.

    ``state:train`` looks into the state, ``jetson-0`` into the id; a word with an unknown key
    is looked for in the id as it stands.
    """
    return all(_fits(device, word) for word in query.lower().split())


def _fits(device: DeviceView, word: str) -> bool:
    key, _, value = word.partition(":")
    if value and key in _FIELDS:
        return value in str(getattr(device, _FIELDS[key])).lower()
    return word in device.device.lower()
