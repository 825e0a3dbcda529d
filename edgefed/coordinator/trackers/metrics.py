"""``metrics.csv`` and ``metrics.jsonl`` in the run's folder: one line for each finished round."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.coordinator.trackers.base import Row, TrackedRun
from edgefed.errors import StorageError
from edgefed.files.writing import append_whole, open_private, storage_error, write_atomic

COLUMNS = (
    "round",
    "accuracy",
    "loss",
    "train_loss",
    "replies",
    "late",
    "seconds",
    "sent",
    "received",
)
"""The columns that every round has; scores of other kinds come after them."""


class MetricFiles:
    """Writes both files anew when a run is taken up, and then a line a round.

    A line that a crash cut short, or that a full disk did not take, is mended by the next writing.
    """

    name = "metrics"

    def __init__(self) -> None:
        self._folder = Path()
        self._columns: Sequence[str] = COLUMNS
        self._last = 0

    def begin(self, run: TrackedRun) -> None:
        """Write the finished rounds.

        Raises:
            StorageError: the disk does not take it.
        """
        self._folder = run.folder
        self._last = max((row["round"] for row in run.rounds), default=0)
        self._write(run.rounds)

    def round(self, row: Row) -> None:
        """Append a line; a score that no round before had makes a new column.

        The row of an earlier round, which devices have tested since, takes the place of its line.

        Raises:
            StorageError: the disk does not take it.
        """
        if row["round"] <= self._last:
            others = (other for other in self._written() if other["round"] != row["round"])
            self._write(sorted((*others, row), key=lambda line: int(line["round"])))
            return
        self._last = row["round"]
        if set(row) - set(self._columns):
            self._write([*self._written(), row])
            return
        self._append("metrics.csv", _csv([row], self._columns, header=False))
        self._append("metrics.jsonl", _jsonl([row]))

    def end(self, record: RunRecord) -> None:
        """Do nothing: no file is open."""

    def _write(self, rows: Sequence[Row]) -> None:
        more = dict.fromkeys(key for row in rows for key in row if key not in COLUMNS)
        self._columns = (*COLUMNS, *more)
        text = _csv(rows, self._columns, header=True)
        write_atomic(self._folder / "metrics.csv", text.encode())
        write_atomic(self._folder / "metrics.jsonl", _jsonl(rows).encode())

    def _written(self) -> list[Row]:
        path = self._folder / "metrics.jsonl"
        try:
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        except OSError as error:
            raise storage_error(path, error) from error
        except ValueError as error:
            raise StorageError(f"{path} differs from the written data.") from error

    def _append(self, name: str, text: str) -> None:
        path = self._folder / name
        try:
            with open_private(path, "ab", buffering=0) as file:
                append_whole(file, text.encode())
        except OSError as error:
            raise storage_error(path, error) from error


def _jsonl(rows: Iterable[Row]) -> str:
    return "".join(json.dumps(dict(row), allow_nan=False) + "\n" for row in rows)


def _csv(rows: Iterable[Row], columns: Sequence[str], *, header: bool) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
