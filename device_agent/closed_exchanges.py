"""Which exchanges of a run are over, so that a late copy of a task is not taken for a new one.

What is learned is written down together with the replies that are thrown away for it: an exchange
that this device has answered is never answered again, also by its next process.
"""

from __future__ import annotations

from edgefed.database.database import Database, Table

RUNS_KEPT = 64
"""Runs that are remembered; the one that was heard of least recently is forgotten for a new one."""

CLOSED_TABLE = Table({"run": "text not null", "through": "integer not null"}, ("run",))


class ClosedExchanges:
    """The last closed exchange of each run.

    Args:
        database: has ``CLOSED_TABLE`` as ``closed``.

    Raises:
        StorageError: the table is damaged.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self._through = {str(run): int(str(last)) for run, last in database.rows("closed")}

    def through(self, run: str) -> int:
        """Return the index up to which the exchanges of a run are over; -1 for none."""
        return self._through.get(run, -1)

    def write(self, run: str, through: int) -> None:
        """Write down how far a run is; within a transaction."""
        others = [str(row[0]) for row in self._db.rows("closed") if row[0] != run]
        for each in others[: max(0, len(others) + 1 - RUNS_KEPT)]:
            self._db.delete("closed", run=each)
        self._db.put("closed", run, through)

    def note(self, run: str, through: int) -> None:
        """Remember how far a run is; it never goes back."""
        last = max(through, self._through.pop(run, -1))
        self._through[run] = last
        while len(self._through) > RUNS_KEPT:
            del self._through[next(iter(self._through))]
