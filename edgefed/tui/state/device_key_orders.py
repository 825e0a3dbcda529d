"""The order that a key gives about one device in its present state, or why it is not possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from edgefed.events.base.coordinator_states import RELEASE
from edgefed.events.base.snapshot import DeviceSnapshot, Snapshot
from edgefed.tui.keys.keymap import OWN_KEYS, Keymap

DeviceKey = Literal["pause", "quarantine", "release", "forget"]
DeviceAction = Literal["pause", "resume", "quarantine", "release", "forget"]

_TAKEN: dict[DeviceAction, str] = {
    "pause": "{device} is paused: it is not asked until it is resumed.",
    "resume": "{device} takes part again.",
    "quarantine": "{device} is quarantined: it is not asked until it is released.",
    "release": "{device} is released; it stays suspect for a while.",
    "forget": "{device} is forgotten until its agent connects again.",
}

_QUESTIONS: dict[DeviceAction, str] = {
    "pause": "No round asks it until it is resumed. It finishes what it was asked already.",
    "quarantine": "No round asks it until it is released. What it still replies is refused.",
    "forget": "It leaves lists and dashboards until its agent connects again.",
}


@dataclass(frozen=True)
class DeviceOrder:
    """An order about a device."""

    action: DeviceAction
    device: str

    @property
    def question(self) -> str:
        """Its consequence, for a question to the user; empty for no question."""
        return _QUESTIONS.get(self.action, "")

    def taken(self) -> str:
        """Return the message after it was taken."""
        return _TAKEN[self.action].format(device=self.device)


def order_for_device(
    key: DeviceKey, view: DeviceSnapshot, keys: Keymap = OWN_KEYS
) -> DeviceOrder | str:
    """Return the order of a key for a device in its present state, or why there is none."""
    device, quarantined = view.device, view.standing == "quarantined"
    if key == "pause":
        return DeviceOrder("resume" if view.paused_by else "pause", device)
    if key == "quarantine" and quarantined:
        return f"{device} is quarantined already: {keys.label('device.release')} releases it."
    if key == "release" and not quarantined and RELEASE not in view.excluded:
        return f"{device} is not quarantined."
    if key == "forget" and view.state != "lost":
        return f"{device} is online: only a lost device can be forgotten."
    return DeviceOrder(key, device)


def words_for_device(newest: Snapshot | None, device: str | None) -> Mapping[str, str]:
    """Return the words of keys that differ in the present state of a device, by their actions."""
    views = newest.devices if newest else ()
    paused = any(view.device == device and view.paused_by for view in views)
    return {"device.pause": "Resume"} if paused else {}
