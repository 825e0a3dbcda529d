"""The ledger of a device's releases: an append-only table in the agent's database.

Rows are grouped in pages, so that a commit computes the digest of one page only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgefed.algorithms.device_side import LedgerEntry
from edgefed.database.database import Database, Table

PAGE = 256
"""Rows of a page."""

LEDGER_TABLE = Table(
    {
        "id": "integer not null",
        "page": "text not null",
        "time": "text not null",
        "run": "text not null",
        "exchange": "text not null",
        "entry": "text not null",
    },
    ("id",),
    group="page",
)


@dataclass(frozen=True)
class Release:
    """A row of the ledger.

    Attributes:
        id: counts from 1.
        time: when it was committed, as ``timestamp`` writes it.
        run, exchange: of the reply that it was committed with; empty for what a birth tells.
        entry: what the algorithm noted.
    """

    id: int
    time: str
    run: str
    exchange: str
    entry: LedgerEntry

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "id": self.id,
            "time": self.time,
            "run": self.run,
            "exchange": self.exchange,
            "entry": dict(self.entry),
        }


class Ledger:
    """The ledger of one database, read once and then kept in memory.

    Args:
        database: has a table ``ledger`` like ``LEDGER_TABLE``.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._releases: tuple[Release, ...] | None = None

    def releases(self) -> tuple[Release, ...]:
        """Return all rows, oldest first.

        Raises:
            StorageError: one is damaged or missing.
        """
        if self._releases is None:
            found: list[Release] = []
            page = 0
            while rows := self._database.rows("ledger", str(page)):
                found.extend(_release(*row) for row in rows)
                page += 1
            self._releases = tuple(found)
        return self._releases

    def next_releases(
        self, entries: Sequence[LedgerEntry], time: str, run: str = "", exchange: str = ""
    ) -> tuple[Release, ...]:
        """Return the rows that entries become; nothing is written."""
        first = len(self.releases()) + 1
        return tuple(
            Release(number, time, run, exchange, entry)
            for number, entry in enumerate(entries, first)
        )

    def append_once(self, entry: LedgerEntry, time: str) -> None:
        """Write the row of a release without a reply, unless there is one like it.

        Raises:
            StorageError: the disk is full; nothing is written.
        """
        if any(not each.exchange and each.entry == entry for each in self.releases()):
            return
        releases = self.next_releases((entry,), time)
        with self._database.transaction():
            self.put(releases)
        self.committed(releases)

    def put(self, releases: Sequence[Release]) -> None:
        """Write rows; within a transaction, after which ``committed`` is called."""
        for each in releases:
            page, entry = str((each.id - 1) // PAGE), json.dumps(dict(each.entry))
            row = (each.id, page, each.time, each.run, each.exchange, entry)
            self._database.put("ledger", *row)

    def committed(self, releases: Sequence[Release]) -> None:
        """Note that rows are on disk."""
        self._releases = (*self.releases(), *releases)


def _release(*row: object) -> Release:
    number, _, time, run, exchange, entry = row
    return Release(int(str(number)), str(time), str(run), str(exchange), json.loads(str(entry)))
