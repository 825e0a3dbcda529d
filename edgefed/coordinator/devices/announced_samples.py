"""Exclude devices that announce far more samples than the others, until an operator's release.

A merge weighs a device by the samples that it announces, and this number cannot be checked. A
device that announces more than a factor times the median of the fleet, of samples to train on or to
test on, is therefore excluded. The median is over all devices that are known and have such samples,
itself included: while fewer than half of them lie, it lies between two honest numbers. It is
computed from three devices on. With fewer, as just after a restart, the last median is used, unless
so many devices were removed that fewer than three are left.

A release holds until the device announces more than twice its number at that time. An excluded
device that later announces few enough takes part again without a release.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from edgefed.algorithms.interface.member import Member
from edgefed.database.database import Database, DatabaseTable
from edgefed.errors import StorageError
from edgefed.events.base.coordinator_states import RELEASE

log = logging.getLogger(__name__)

LEAST_DEVICES = 3
"""Devices from which on there is a median to compare with."""

GROWTH = 2
"""How many times the samples of its release a device may announce."""

ANNOUNCED = DatabaseTable(
    {
        "device": "text not null",
        "samples": "integer not null",
        "held_out": "integer not null",
        "released": "integer not null",
    },
    ("device",),
)
"""The devices that were excluded, with the numbers that they announced then."""

MEDIANS = DatabaseTable(
    {"counted": "text not null", "median": "real not null"},
    ("counted",),
)
"""The last medians."""

_COUNTED: Mapping[str, tuple[str, Callable[[Member], int]]] = {
    "samples": ("samples", lambda member: member.samples),
    "held_out": ("held-out samples", lambda member: member.held_out),
}


@dataclass(frozen=True)
class _Excluded:
    device: str
    samples: int
    held_out: int
    released: bool = False

    def allows(self, counted: str) -> int:
        """Return how many samples its release allows."""
        return GROWTH * int(getattr(self, counted)) if self.released else 0


class SampleExclusions:
    """The devices that are excluded for their announced samples; safe from any thread.

    Args:
        database: keeps releases and medians, in the tables above; None to keep nothing.
    """

    def __init__(self, database: Database | None = None) -> None:
        self._lock = threading.Lock()
        self._db = database
        rows = () if database is None else database.rows("announced")
        self._known = {
            str(device): _Excluded(
                str(device), int(str(samples)), int(str(held_out)), bool(released)
            )
            for device, samples, held_out, released in rows
        }
        rows = () if database is None else database.rows("medians")
        self._medians = {str(counted): float(str(value)) for counted, value in rows}

    def reasons(self, known: Iterable[Member], factor: float) -> dict[str, str]:
        """Return the reasons for exclusion by device, and store the devices that can be released.

        Args:
            known: all devices of the fleet, also those that are lost.
            factor: how many times the median a device may announce; 0 for any number.
        """
        return self._noted(list(known), factor, forget=False)

    def exclude(self, known: Iterable[Member], factor: float) -> dict[str, str]:
        """Do the same as ``reasons``, and forget the exclusions that are over."""
        return self._noted(list(known), factor, forget=True)

    def release(self, device: str) -> bool:
        """Let an excluded device take part; return whether it was excluded."""
        with self._lock:
            known = self._known.get(device)
            if known is None or known.released:
                return False
            self._write(self._medians, [replace(known, released=True)])
            return True

    def removed(self, left: int) -> None:
        """Note that a device was removed; the last medians are forgotten with the last three.

        Args:
            left: devices that are known without it.
        """
        with self._lock:
            if left >= LEAST_DEVICES or not self._medians:
                return
            try:
                if self._db is not None:
                    with self._db.transaction():
                        for counted in self._medians:
                            self._db.delete("medians", counted=counted)
            except StorageError as error:
                log.warning("%s", error.message)
            self._medians = {}

    def _noted(self, members: Sequence[Member], factor: float, *, forget: bool) -> dict[str, str]:
        if not factor:
            return {}
        with self._lock:
            medians = self._medians_of(members)
            reasons = self._reasons(members, medians, factor)
            rows = [_Excluded(m.device, m.samples, m.held_out) for m in members]
            try:
                self._write(medians, [row for row in rows if row.device in reasons])
                if forget:
                    self._forget(row.device for row in rows if row.device not in reasons)
            except StorageError as error:  # it is written the next time
                log.warning("%s", error.message)
            return reasons

    def _forget(self, devices: Iterable[str]) -> None:
        """Forget that devices were excluded that take part again without a release."""
        over = [
            device
            for device in devices
            if device in self._known and not self._known[device].released
        ]
        if self._db is not None and over:
            with self._db.transaction():
                for device in over:
                    self._db.delete("announced", device=device)
        for device in over:
            del self._known[device]

    def _medians_of(self, known: Iterable[Member]) -> dict[str, float]:
        """Return the medians, of the last devices where there are too few now."""
        medians = dict(self._medians)
        members = list(known)
        for counted, (_, count_of) in _COUNTED.items():
            counts = [count for member in members if (count := count_of(member))]
            if len(counts) >= LEAST_DEVICES:
                medians[counted] = float(median(counts))
        return medians

    def _reasons(
        self, known: Iterable[Member], medians: Mapping[str, float], factor: float
    ) -> dict[str, str]:
        reasons = {}
        for member in known:
            before = self._known.get(member.device)
            for counted, (words, count_of) in _COUNTED.items():
                count, middle = count_of(member), medians.get(counted)
                if middle is None or count <= factor * middle:
                    continue
                if before is None or count > before.allows(counted):
                    reasons[member.device] = (
                        # Without the median: the reason is told again whenever it changes.
                        f"it announces {count} {words}, more than {factor:g} times the fleet's"
                        f" median; {RELEASE} {member.device}"
                    )
        return reasons

    def _write(self, medians: Mapping[str, float], rows: Iterable[_Excluded]) -> None:
        changed = [row for row in rows if self._known.get(row.device) != row]
        moved = {name: value for name, value in medians.items() if self._medians.get(name) != value}
        if self._db is not None and (changed or moved):
            with self._db.transaction():
                for row in changed:
                    numbers = (row.samples, row.held_out, int(row.released))
                    self._db.put("announced", row.device, *numbers)
                for name, value in moved.items():
                    self._db.put("medians", name, value)
        self._known |= {row.device: row for row in changed}
        self._medians |= moved
