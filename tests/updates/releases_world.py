"""The releases of a coordinator without a broker: what it sends, and the reports of its devices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from edgefed.coordinator.updates.agent_releases import LOOK_EVERY, SETTLE, AgentReleases
from edgefed.wire.update_messages import UpdateOffer, UpdateState

SESSION = "a" * 8


class Coordinator:
    """The releases of a coordinator that knows devices, of which ``far`` is at a site.

    Attributes:
        sent: offers by device, in their order.
        notes: texts of its events.
        online: the connected devices.
    """

    def __init__(self, folder: Path, devices: Sequence[str] = ("cam", "far")) -> None:
        self.sent: list[tuple[str, UpdateOffer]] = []
        self.notes: list[str] = []
        self.online = set(devices)
        journal: Any = Mock()
        journal.snapshot.devices = [SimpleNamespace(device=name) for name in devices]
        journal.emit = lambda kind, level, text: self.notes.append(text)
        registry: Any = SimpleNamespace(
            session=lambda device: SESSION if device in self.online else "",
            devices=lambda: list(devices),
            online=lambda device: device in self.online,
        )
        numbers = count(len(list(folder.glob("releases.json"))) * 1000)
        self.releases = AgentReleases(
            folder,
            lambda device, offer: self.sent.append((device, offer)),
            registry,
            lambda device: "site" if device == "far" else "",
            journal,
            lambda: f"{next(numbers):08x}",
        )
        self._now = 0.0
        self.releases.due(self._now)
        self._now += SETTLE

    def turn(self) -> list[tuple[str, UpdateOffer]]:
        """Let it look at its rollout; return what it sends."""
        before = len(self.sent)
        self.releases.due(self._now)
        self._now += LOOK_EVERY
        return self.sent[before:]

    def offer_to(self, device: str) -> UpdateOffer:
        """Return the last offer that a device was sent."""
        return [offer for name, offer in self.sent if name == device][-1]

    def report(self, device: str, release: str, phase: str = "idle") -> None:
        """Take a device's report on its last offer."""
        offer = self.offer_to(device).offer
        state = UpdateState(session=SESSION, release=release, phase=phase, offer=offer)
        self.releases.take(device, state)
