"""The settings of a coordinator process, and the id of its state directory."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from edgefed.config.fleet.alert_settings import AlertSettings
from edgefed.config.values.address import Address
from edgefed.coordinator.members.membership import MembershipSettings
from edgefed.coordinator.trackers.base import Tracker
from edgefed.errors import StorageError
from edgefed.files.writing import write_atomic


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of a coordinator process.

    Attributes:
        folder: its state directory.
        trackers: notified of every round of its runs.
        user_models: whether a run may name a user's own code as its model, which is then imported.
        memory: most bytes that training a model may take here; 0 for half of the free memory.
        membership: the fleet's authority; None where there is none on this machine.
        gateway: name of the gateway that this process is; empty for a coordinator.
        alerts: conditions of alerts, and their receivers.
    """

    address: Address
    fleet: str
    folder: Path
    trackers: tuple[Tracker, ...] = ()
    user_models: bool = False
    memory: int = 0
    membership: MembershipSettings | None = None
    gateway: str = ""
    alerts: AlertSettings = field(default_factory=AlertSettings)

    @property
    def party(self) -> str:
        """Return the name of this kind of process in its own words."""
        return "gateway" if self.gateway else "coordinator"


def owner_of(folder: Path) -> str:
    """Return the id of a state directory, made once."""
    path = folder / "owner"
    if not path.exists():
        write_atomic(path, secrets.token_hex(8).encode())
    owner = path.read_bytes().strip()
    if not re.fullmatch(rb"[0-9a-f]{16}", owner):
        raise StorageError(
            f"{path} is damaged.",
            code="storage.damaged",
            hint="delete the file; the coordinator then creates another id",
        )
    return owner.decode()
