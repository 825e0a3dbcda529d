"""The devices that operators have paused; kept across runs and restarts.

A paused device is not asked until an operator resumes it. It stays connected, and its trust score
does not change. The exchange that has asked it already still takes its reply.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefed.database.database import Database, DatabaseTable, Schema
from edgefed.errors import UnknownNameError, UsageError

FILE = "device-pauses.db"

NOT_PAUSED: dict[str, Any] = {"paused_by": "", "pause_reason": ""}
"""The fields of a ``device`` event for a device that is not paused."""

_SCHEMA = Schema(
    1,
    {
        "pauses": DatabaseTable(
            {
                "device": "text not null",
                "operator": "text not null",
                "reason": "text not null",
                "since": "text not null",
            },
            ("device",),
        )
    },
    "the database of paused devices",
)


@dataclass(frozen=True)
class OperatorPause:
    """An operator's pause of a device.

    Attributes:
        operator: user that ordered it.
        reason: the operator's reason; may be empty.
        since: UTC time of the order.
    """

    device: str
    operator: str
    reason: str
    since: str

    def fields(self) -> dict[str, Any]:
        """Return its fields of a ``device`` event."""
        return {"paused_by": self.operator, "pause_reason": self.reason}


class DevicePauses:
    """The pauses of all devices; safe from any thread.

    Args:
        folder: the coordinator's state directory; None to keep nothing, as in tests.

    Raises:
        StorageError: the file cannot be used, or is damaged.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._db = None if folder is None else Database(folder / FILE, _SCHEMA)
        rows = () if self._db is None else self._db.rows("pauses")
        self._known = {str(row[0]): OperatorPause(*map(str, row)) for row in rows}

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()

    def __contains__(self, device: str) -> bool:
        return device in self._known

    def all(self) -> list[OperatorPause]:
        """Return the pauses, sorted by device."""
        with self._lock:
            return [self._known[device] for device in sorted(self._known)]

    def fields(self, device: str) -> dict[str, Any]:
        """Return the fields of a ``device`` event for a device, paused or not."""
        known = self._known.get(device)
        return dict(NOT_PAUSED) if known is None else known.fields()

    def pause(self, pause: OperatorPause) -> None:
        """Pause a device.

        Raises:
            UsageError: ``device.paused``: it is paused already.
            StorageError: the disk does not take it.
        """
        with self._lock:
            known = self._known.get(pause.device)
            if known is not None:
                raise UsageError(
                    f"Device {pause.device} is paused already, by {known.operator}.",
                    code="device.paused",
                    hint=f"edgefed device resume {pause.device}",
                )
            if self._db is not None:
                with self._db.transaction():
                    self._db.put("pauses", pause.device, pause.operator, pause.reason, pause.since)
            self._known[pause.device] = pause

    def resume(self, device: str) -> None:
        """End a device's pause.

        Raises:
            UnknownNameError: ``device.not_paused``: no operator has paused it.
            StorageError: the disk does not take it.
        """
        with self._lock:
            if device not in self._known:
                raise UnknownNameError(
                    f"Device {device} is not paused by an operator.",
                    code="device.not_paused",
                    hint="edgefed device list shows which are",
                )
            if self._db is not None:
                with self._db.transaction():
                    self._db.delete("pauses", device=device)
            del self._known[device]
