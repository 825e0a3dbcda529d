"""The fleet's own table: how each device answered the tasks of a run, and with how many samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from edgefed.coordinator.exchanges.fleet import Verdict
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.events.base.method_tables import (
    DEVICE,
    Column,
    MethodTable,
    TableView,
    method_table,
    numbers_in,
)
from edgefed.wire.messages import Reply

CONTRIBUTIONS = "contributions"
COLUMNS = (
    *(Column(name=name, format=",d") for name in ("asked", "answered", "late", "refused")),
    Column(name="samples", format=",d"),
    Column(name="share", format=".1%", show="bar"),
)
NAMED = 8
"""Devices that the verdict names; of the others it says how many there are."""


@dataclass
class _Counts:
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


@dataclass
class _Asked:
    """An exchange that is neither merged nor closed, with the verdicts so far by device."""

    exchange: OpenExchange
    verdicts: dict[str, tuple[Verdict, int]] = field(default_factory=dict)


class Contributions:
    """Counts the tasks of one run's devices; preparatory exchanges and tests do not count.

    A task is answered, refused, or late: without a valid reply when its exchange was closed.
    """

    def __init__(self) -> None:
        self._run = ""
        self._counts: dict[str, _Counts] = {}
        self._asked: dict[str, _Asked] = {}

    def begin(self, run: str, tables: Iterable[TableView]) -> None:
        """Begin a run, with the counts in the tables that it had before a restart."""
        before = numbers_in(tables, CONTRIBUTIONS, COLUMNS)
        self._run, self._asked = run, {}
        self._counts = {device: _Counts(*map(int, cells[1:5])) for device, cells in before.items()}

    def put(self, exchange: OpenExchange) -> None:
        """Take an exchange that is put to devices, perhaps again."""
        if exchange.name != "evaluate" and not exchange.preparatory:
            self._asked[exchange.exchange] = _Asked(exchange)

    def verdict(self, reply: Reply, outcome: Verdict) -> None:
        """Take the verdict on a reply."""
        if reply.exchange in self._asked:
            self._asked[reply.exchange].verdicts[reply.device] = outcome, reply.samples

    def merged(self, exchange: OpenExchange) -> None:
        """Count an exchange whose accepted answers are merged."""
        self._count(exchange.exchange, merged=True)

    def closed(self, run: str, through: int) -> None:
        """Count the exchanges up to an index that were not merged: their samples do not count."""
        if run == self._run:
            for name in [
                name for name, asked in self._asked.items() if asked.exchange.index <= through
            ]:
                self._count(name, merged=False)

    def _count(self, name: str, *, merged: bool) -> None:
        asked = self._asked.pop(name, None)
        for task in asked.exchange.tasks if asked is not None else ():
            outcome, samples = asked.verdicts.get(task.device, ("late", 0))
            counts = self._counts.setdefault(task.device, _Counts())
            counts.answered += outcome == "accepted"
            counts.late += outcome == "late"
            counts.refused += outcome == "rejected"
            counts.samples += samples if merged and outcome == "accepted" else 0

    def tables(self) -> tuple[MethodTable, ...]:
        """Return the table; nothing before the first answers are merged."""
        counts = sorted(self._counts.items())
        if not counts:
            return ()
        total = sum(each.samples for _, each in counts)
        idle = [device for device, each in counts if not each.samples]
        rows = (
            (device, (*each.cells, round(each.samples / max(total, 1), 3)))
            for device, each in counts
        )
        series = {"samples": total, "devices": len(counts) - len(idle)}
        verdict = _verdict(len(counts), idle, total)
        return (
            method_table(CONTRIBUTIONS, COLUMNS, rows, key=DEVICE, series=series, verdict=verdict),
        )


def _verdict(devices: int, idle: list[str], total: int) -> str:
    if not idle:
        return f"All {devices} devices contributed, {total:,} samples in all"
    more = f" and {len(idle) - NAMED} more" if len(idle) > NAMED else ""
    named = f"{', '.join(idle[:NAMED])}{more}"
    return f"{len(idle)} of {devices} devices contributed nothing: {named}"
