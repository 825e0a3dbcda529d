"""The fleet's own table: how each device answered the tasks of a run, and with how many samples."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.events.base.method_tables import (
    DEVICE,
    Column,
    MethodTable,
    TableView,
    method_table,
    numbers_in,
)
from edgefed.terminal.units import counted

CONTRIBUTIONS = "contributions"
COLUMNS = (
    *(Column(name=name, format=",d") for name in ("asked", "answered", "late", "refused")),
    Column(name="samples", format=",d"),
    Column(name="share", format=".1%", show="bar"),
)
NAMED = 8
"""Devices that the verdict names; of the others it says how many there are."""


@dataclass
class _Outcomes:
    """The tasks of a device by their outcome, and the samples of its merged answers."""

    answered: int = 0
    late: int = 0
    refused: int = 0
    samples: int = 0

    @property
    def cells(self) -> tuple[int, ...]:
        """The cells of its row, without the share."""
        asked = self.answered + self.late + self.refused
        return asked, self.answered, self.late, self.refused, self.samples


class Contributions:
    """Counts the tasks of a run's devices by their outcome.

    A task is answered, refused, or late: without a valid reply when its exchange was closed.
    """

    name = CONTRIBUTIONS
    names_devices = True

    def __init__(self) -> None:
        self._counts: dict[str, _Outcomes] = {}

    # The columns are those of _Outcomes.cells; the share follows from all devices' samples
    def begin(self, tables: Iterable[TableView]) -> None:
        """Begin a run, with the counts in the tables that it had before a restart."""
        rows = numbers_in(tables, CONTRIBUTIONS, COLUMNS)
        self._counts = {device: _Outcomes(*map(int, cells[1:5])) for device, cells in rows.items()}

    def add(
        self, exchange: OpenExchange, merged: Mapping[str, int], refused: Collection[str]
    ) -> None:
        """Count an exchange that is over.

        Args:
            exchange: the exchange.
            merged: devices whose answers were accepted, with the samples in the model.
            refused: devices whose replies were refused.
        """
        for task in exchange.tasks:
            counts = self._counts.setdefault(task.device, _Outcomes())
            if task.device in merged:
                counts.answered += 1
                counts.samples += merged[task.device]
            elif task.device in refused:
                counts.refused += 1
            else:
                counts.late += 1

    def series(self) -> dict[str, float]:
        """Return the merged samples, and the number of devices that they are from."""
        samples = [outcomes.samples for outcomes in self._counts.values()]
        numbers = {"samples": sum(samples), "devices": sum(map(bool, samples))}
        return {name: float(number) for name, number in numbers.items()} if samples else {}

    def table(self) -> MethodTable | None:
        """Return the table; None before the first answers are merged."""
        counts = sorted(self._counts.items())
        if not counts:
            return None
        series = self.series()
        total = int(series["samples"])
        idle = [device for device, outcomes in counts if not outcomes.samples]
        rows = (
            # At least one sample, so that a run whose answers count none has shares of zero
            (device, (*outcomes.cells, round(outcomes.samples / max(total, 1), 3)))
            for device, outcomes in counts
        )
        verdict = _verdict(len(counts), idle, total)
        return method_table(
            CONTRIBUTIONS, COLUMNS, rows, key=DEVICE, series=series, verdict=verdict
        )


def _verdict(devices: int, idle: list[str], total: int) -> str:
    if not idle:
        return f"{counted(devices, 'device')} contributed {total:,} samples"
    more = f" and {len(idle) - NAMED} more" if len(idle) > NAMED else ""
    named = f"{', '.join(idle[:NAMED])}{more}"
    return f"{len(idle)} of {devices} devices contributed nothing: {named}"
