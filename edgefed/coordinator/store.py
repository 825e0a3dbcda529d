"""Runs on disk: SQLite for rows, safetensors for weights; committed after every exchange.

``edgefed.db`` holds runs, rounds and the open exchange. A run's folder holds ``recipe.toml``,
``events.jsonl``, ``model.safetensors`` and the algorithm's state of the last commit, by
``edgefed.coordinator.state_files``. A state file is written and renamed before the row that names
it is committed, so a kill at any moment leaves the old state or the new one.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from safetensors.numpy import save

from edgefed.algorithms.base import State
from edgefed.coordinator.records import Checkpoint, OpenExchange, RunRecord
from edgefed.coordinator.state_files import StateFiles, contiguous
from edgefed.errors import StorageError, UnknownNameError
from edgefed.files import make_folder, write_atomic
from edgefed.learn.types import Tensors
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import Task

SCHEMA = 1
"""Version of the state directory; a newer one is refused, never half-read."""

_TABLES = """
create table runs (run text primary key, record text not null);
create table checkpoints (run text primary key, round integer not null,
    layout text not null, facts text not null, downlink text not null);
create table exchanges (run text primary key, record text not null);
create table tasks (run text not null, position integer not null, task blob not null,
    primary key (run, position));
create table rounds (run text not null, round integer not null, record text not null,
    primary key (run, round));
"""


class Store:
    """The coordinator's state directory; safe from any thread.

    Args:
        folder: created when missing.
        durable: whether a commit waits for the disk; a simulation need not.

    Raises:
        StorageError: the folder cannot be used, or was written by a newer version.
    """

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder = make_folder(folder)
        self._files = StateFiles(durable=durable)
        # One connection has one transaction, so threads take turns, reads included.
        self._lock = threading.RLock()
        path = folder / "edgefed.db"
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            try:
                self._db.execute("pragma journal_mode = wal")
                self._db.execute(f"pragma synchronous = {'full' if durable else 'off'}")
                self._open_schema()
            except BaseException:
                self._db.close()
                raise
        except sqlite3.Error as error:
            raise StorageError(
                f"Cannot use the run database {path}: {error}.",
                hint="check the folder's permissions and free space, or choose another --state",
            ) from error

    def _open_schema(self) -> None:
        version = self._db.execute("pragma user_version").fetchone()[0]
        if version > SCHEMA:
            raise StorageError(
                f"{self.folder} was written by a newer EdgeFed (state version {version}, "
                f"this one reads {SCHEMA}).",
                code="storage.newer",
                hint="upgrade edgefed, or choose another folder with --state",
            )
        if version == 0:
            with self._transaction():
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"pragma user_version = {SCHEMA}")

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            try:
                self._db.execute("begin immediate")
                try:
                    yield
                    self._db.execute("commit")
                except BaseException:
                    if self._db.in_transaction:  # a full disk may have ended it already
                        self._db.execute("rollback")
                    raise
            except sqlite3.Error as error:
                raise _database_error(self.folder, error) from error

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._db.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise _database_error(self.folder, error) from error

    # -- runs ---------------------------------------------------------------------------------

    def run_folder(self, run: str) -> Path:
        """Return the folder of a run's files."""
        return self.folder / "runs" / run

    def next_number(self) -> int:
        """Return the number of the next run, counted from 1."""
        return int(self._rows("select count(*) from runs")[0][0]) + 1

    def save_run(self, record: RunRecord) -> None:
        """Insert or replace a run's row."""
        with self._transaction():
            self._write_run(record)

    def _write_run(self, record: RunRecord) -> None:
        row = (record.run, json.dumps(asdict(record)))
        self._db.execute(
            "insert into runs values (?, ?)"
            " on conflict (run) do update set record = excluded.record",
            row,
        )

    def runs(self) -> list[RunRecord]:
        """Return all runs, newest first."""
        rows = self._rows("select record from runs order by rowid desc")
        return [_run_record(row[0]) for row in rows]

    def run(self, name: str) -> RunRecord:
        """Return the run of an id, or of an unambiguous beginning of one.

        Raises:
            UnknownNameError: none or several match.
        """
        found = [record for record in self.runs() if record.run.startswith(name)]
        exact = [record for record in found if record.run == name]
        if not exact and len(found) != 1:
            problem = f"No run {name}." if not found else f"{name} names {len(found)} runs."
            raise UnknownNameError(problem, code="run.unknown", hint="edgefed run list")
        return (exact or found)[0]

    # -- checkpoints --------------------------------------------------------------------------

    def begin_exchange(
        self, record: RunRecord, exchange: OpenExchange, downlink: Mapping[str, Any]
    ) -> None:
        """Write down an exchange before it is put to anybody."""
        plain = {
            field.name: getattr(exchange, field.name)
            for field in fields(exchange)
            if field.name != "tasks"
        }
        with self._transaction():
            self._write_run(record)
            self._db.execute(
                "insert or replace into exchanges values (?, ?)", (record.run, json.dumps(plain))
            )
            self._db.execute("delete from tasks where run = ?", (record.run,))
            self._db.executemany(
                "insert into tasks values (?, ?, ?)",
                [(record.run, k, encode(task)) for k, task in enumerate(exchange.tasks)],
            )
            self._db.execute(
                "update checkpoints set downlink = ? where run = ?",
                (json.dumps(downlink), record.run),
            )

    def commit(
        self,
        record: RunRecord,
        state: State,
        downlink: Mapping[str, Any],
    ) -> None:
        """Write the state after an exchange, and close it, in one step."""
        folder, file = self.run_folder(record.run), f"state-{record.exchanges:06d}.safetensors"
        layout = self._files.write(folder, file, state.groups)
        with self._transaction():
            self._write_run(record)
            self._db.execute(
                "insert or replace into checkpoints values (?, ?, ?, ?, ?)",
                (
                    record.run,
                    state.round,
                    json.dumps(layout),
                    json.dumps(state.facts),
                    json.dumps(downlink),
                ),
            )
            self._forget_exchange(record.run)
        self._files.committed(folder, layout, state.groups)

    def close_exchange(self, run: str) -> None:
        """Forget the open exchange of a run; its state is as it was."""
        with self._transaction():
            self._forget_exchange(run)

    def save_round(self, record: RunRecord, row: Mapping[str, Any]) -> None:
        """Write a finished round and the run's row, and close the exchange that tested it.

        In one step, since an exchange that was closed alone would, after a restart, be asked again
        under a new index, from which the seeds of all later exchanges derive.
        """
        with self._transaction():
            self._write_run(record)
            self._db.execute(
                "insert or replace into rounds values (?, ?, ?)",
                (record.run, row["round"], json.dumps(row)),
            )
            self._forget_exchange(record.run)

    def checkpoint(self, run: str) -> Checkpoint | None:
        """Return where a run stands, or None when it has not begun.

        Raises:
            StorageError: its files are damaged.
        """
        rows = self._rows(
            "select round, layout, facts, downlink from checkpoints where run = ?", run
        )
        if not rows:
            return None
        number, layout, facts, downlink = rows[0]
        groups = self._files.read(self.run_folder(run), json.loads(layout))
        state = State(round=number, groups=groups, facts=json.loads(facts))
        return Checkpoint(state, json.loads(downlink), self._open_exchange(run))

    def group(self, run: str, group: str) -> list[str]:
        """Return the names of the arrays in a group of a run's state, without reading them."""
        rows = self._rows("select layout from checkpoints where run = ?", run)
        _, names = json.loads(rows[0][0]).get(group, ("", [])) if rows else ("", [])
        return list(names)

    def rounds(self, run: str) -> list[dict[str, Any]]:
        """Return a run's finished rounds, oldest first."""
        rows = self._rows("select record from rounds where run = ? order by round", run)
        return [json.loads(row[0]) for row in rows]

    def save_model(self, run: str, weights: Tensors, metadata: Mapping[str, str]) -> Path:
        """Write the global model beside the run and return its path."""
        path = self.run_folder(run) / "model.safetensors"
        write_atomic(path, save(contiguous(weights), dict(metadata)))
        return path

    def _forget_exchange(self, run: str) -> None:
        self._db.execute("delete from exchanges where run = ?", (run,))
        self._db.execute("delete from tasks where run = ?", (run,))

    def _open_exchange(self, run: str) -> OpenExchange | None:
        with self._lock:
            found = self._rows("select record from exchanges where run = ?", run)
            rows = self._rows("select task from tasks where run = ? order by position", run)
        if not found:
            return None
        tasks = tuple(decode(task, Task) for (task,) in rows)
        return OpenExchange(tasks=tasks, **json.loads(found[0][0]))


def _run_record(text: str) -> RunRecord:
    known = {field.name for field in fields(RunRecord)}
    values = {key: value for key, value in json.loads(text).items() if key in known}
    # JSON knows no tuples.
    for name in ("shape", "class_names"):
        values[name] = tuple(values.get(name, ()))
    return RunRecord(**values)


def _database_error(folder: Path, error: sqlite3.Error) -> StorageError:
    full = "full" in str(error)
    return StorageError(
        f"The disk is full: cannot write to {folder}." if full else f"Cannot write: {error}.",
        code="storage.full" if full else "storage.failed",
        hint="free some space; the last committed state is intact",
    )
