"""The problem of a device, and the order with the worst and oldest problem first."""

from __future__ import annotations

import math
from collections.abc import Iterable

from edgefed.events.base.coordinator_states import REFUSED_DATA, why_paused
from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.events.state.attention import AttentionItem, of_device
from edgefed.tui.look.text_format import moment

_RANKS = (
    "silent", "lost", "failed", "refused", "standing", "excluded", "late", "hot", "paused",
    "battery", "fine",
)  # fmt: skip
"""The worst first: kinds of ``AttentionItem``, with late between, and devices without trouble.

Those at work and those at rest are one rank: in short rounds devices change several times a second,
and rows that change places with them cannot be chosen.
"""

_WITHOUT_REASON = {
    "silent": "does not answer a ping",
    "lost": "not connected",
    "late": "after the deadline",
}
"""The meaning of a state when its device gave no reason."""


def _worst(device: DeviceSnapshot) -> AttentionItem | None:
    """Return the worst thing that is wrong with a device; being late alone is none."""
    return min(of_device(device), key=lambda item: _RANKS.index(item.kind), default=None)


def _rank(device: DeviceSnapshot, worst: AttentionItem | None) -> int:
    kinds = ["late" if device.state == "late" else "fine"]
    kinds += [worst.kind] if worst is not None else []
    return min(map(_RANKS.index, kinds))


def why(device: DeviceSnapshot) -> str:
    """Return the problem of a device in words, without its state; empty if there is none."""
    worst = _worst(device)
    kind = worst.kind if worst is not None else ""
    if kind == "refused" and not device.reason.startswith(REFUSED_DATA):
        return device.refused_reason or device.reason or "refused"
    if kind == "standing":
        return ": ".join(filter(None, (device.standing, device.trust_reason)))
    if kind == "excluded":
        return device.excluded
    if kind == "hot":
        return device.reason or f"hot: {device.temperature:.0f} °C"
    if kind == "paused":
        return why_paused(device)
    if kind == "battery" and worst is not None:
        return device.reason or worst.text
    return device.reason or _WITHOUT_REASON.get(device.state, "")


def since(device: DeviceSnapshot) -> str:
    """Return the UTC time of the beginning of a device's problem; empty if unknown."""
    return _since(device, _worst(device))


def _since(device: DeviceSnapshot, worst: AttentionItem | None) -> str:
    if worst is not None:
        return worst.since
    return device.state_since if device.state == "late" else ""


def by_trouble(devices: Iterable[DeviceSnapshot], *, reverse: bool = False) -> list[DeviceSnapshot]:
    """Return the devices with the worst trouble first; of equal trouble the oldest, then by id."""
    return sorted(devices, key=_key, reverse=reverse)


def _key(device: DeviceSnapshot) -> tuple[int, float, str]:
    worst = _worst(device)
    began = moment(_since(device, worst))
    return _rank(device, worst), began.timestamp() if began else math.inf, device.device
