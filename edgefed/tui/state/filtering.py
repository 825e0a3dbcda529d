"""Filter devices by parts of their id, or by ``key:value``."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.tui.state.trouble import why

_FIELDS: dict[str, Callable[[DeviceSnapshot], str]] = {
    "device": lambda device: device.device,
    "state": lambda device: device.state,
    "reason": why,
    "hardware": lambda device: device.hardware,
    "agent": lambda device: device.agent,
    "site": lambda device: device.site,
    "trust": lambda device: device.standing,
}
"""Keys of a filter, and the text of a device in which each one searches."""


def matches(device: DeviceSnapshot, query: str) -> bool:
    """Return whether every word of ``query`` fits the device; case does not matter.

    ``state:train`` looks into the state, ``jetson-0`` into the id; a word with an unknown key
    is looked for in the id literally.
    """
    return all(_fits(device, word) for word in query.lower().split())


def _fits(device: DeviceSnapshot, word: str) -> bool:
    key, _, value = word.partition(":")
    if value and key in _FIELDS:
        return value in _FIELDS[key](device).lower()
    return word in device.device.lower()
