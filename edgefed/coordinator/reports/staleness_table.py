"""The table of buffered rounds: how old the answers of each device are when they are merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgefed.events.base.method_tables import DEVICE, Column, MethodTable, method_table

STALENESS = "staleness"
COLUMNS = (
    Column(name="merged", format=",d"),
    *(
        Column(name=name, unit="rounds", format=format_)
        for name, format_ in (("last", ",d"), ("mean", ".2f"), ("most", ",d"))
    ),
)
WINDOW = 60.0
"""Seconds over which merges are counted."""


@dataclass
class _Device:
    """The merged answers of a device, and how stale they were."""

    merged: int = 0
    last: int = 0
    total: int = 0
    most: int = 0


class StalenessTable:
    """Counts the merges of a run with buffered rounds, since this process began to work on it."""

    name = STALENESS
    names_devices = True

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}
        self._merges: list[float] = []
        self._mean = 0.0

    def add(self, staleness: Mapping[str, int], now: float) -> None:
        """Count a merge at a monotonic second, with the staleness of each device's answer."""
        self._merges = [when for when in self._merges if when > now - WINDOW] + [now]
        self._mean = sum(staleness.values()) / len(staleness)
        for device, rounds in staleness.items():
            row = self._devices.setdefault(device, _Device())
            row.merged += 1
            row.last, row.most = rounds, max(row.most, rounds)
            row.total += rounds

    def series(self) -> dict[str, float]:
        """Return the mean staleness of the last merge, and the merges of the last minute."""
        if not self._merges:
            return {}
        return {"mean": round(self._mean, 3), "merges_per_minute": float(len(self._merges))}

    def table(self) -> MethodTable | None:
        """Return the table; None before the first merge."""
        if not self._merges:
            return None
        rows = [
            (device, (row.merged, row.last, round(row.total / row.merged, 3), row.most))
            for device, row in sorted(self._devices.items())
        ]
        answers = sum(row.merged for row in self._devices.values())
        mean = sum(row.total for row in self._devices.values()) / answers
        verdict = (
            f"answers are {mean:.1f} rounds old on average;"
            f" {len(self._merges)} merges in the last minute"
        )
        return method_table(
            STALENESS, COLUMNS, rows, key=DEVICE, series=self.series(), verdict=verdict
        )
