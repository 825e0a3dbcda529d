"""A SQLite file with digests and a commit counter: a read returns what was written or fails.

Every row has a digest of its values, every group of rows (such as a run's rounds) a digest of its
rows' digests, and the root row a digest of all groups. Changed rows, missing rows and rows of an
earlier commit are therefore detected. A write checks the groups that it changes before it updates
their digests, so it never hides damage.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import sqlite3
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from edgefed.errors import StorageError
from edgefed.files.writing import (
    PRIVATE_FILE,
    check_in_place,
    free_bytes,
    open_private,
    storage_error,
)

log = logging.getLogger(__name__)

LOG_PAGES = 256
"""Pages after which the write-ahead log is copied into the database: it stays near 1 MiB."""

CACHED_ROWS = 64
"""Most rows of a group that is kept in memory after it was read and checked."""

RECENT_GROUPS = 32
"""Groups that are remembered. A run has a few, and its database any number of runs."""

NEARLY_FULL = 256 * 1024
"""Free bytes below which an I/O error of SQLite is taken for a full disk."""

BUSY = 60.0
"""Seconds to wait while another process writes, or keeps others from it (``Database.paused``)."""

_OWN_TABLES = (
    "create table groups (tbl text not null, part text not null, digest blob not null,"
    " primary key (tbl, part))",
    "create table root (id integer primary key check (id = 0), commits integer not null,"
    " digest blob not null)",
)

Value = str | bytes | int | float | None
Row = tuple[Value, ...]

Group = tuple[str, str]
"""A table's name, and the value of its group column."""

Remembered = TypeVar("Remembered")

_TAGS = {str: b"s", bytes: b"b", int: b"i", float: b"f", type(None): b"n"}


@dataclass(frozen=True)
class DatabaseTable:
    """A table.

    Attributes:
        columns: SQL type by name, in order.
        key: the primary key's columns.
        group: the column by whose value rows are grouped; empty when all are one group.
    """

    columns: Mapping[str, str]
    key: tuple[str, ...]
    group: str = ""


@dataclass(frozen=True)
class Schema:
    """The tables of a database.

    Attributes:
        version: raised with every change of the tables.
        tables: by name.
        title: description of the file for errors, such as ``the run database``.
        extends: the oldest version to whose tables this one only adds others; such a file gets
            them when it is opened. 0 when there is none.
    """

    version: int
    tables: Mapping[str, DatabaseTable]
    title: str
    extends: int = 0


class Database:
    """One file; safe from any thread.

    Args:
        path: created when missing; its folder exists.
        schema: its tables.
        durable: whether a commit waits for the disk.

    Attributes:
        connection: to SQLite, in autocommit mode.

    Raises:
        StorageError: the file cannot be used, is damaged, or is of another version.
    """

    def __init__(self, path: Path, schema: Schema, *, durable: bool = True) -> None:
        self._path = path
        self._schema = schema
        self._counter = CommitCounter(path.with_name(f"{path.name}-commits")) if durable else None
        # One connection has one transaction, so threads take turns, reads included.
        self._lock = threading.RLock()
        self._touched: set[Group] = set()
        self._checked: RecentGroups[bool] = RecentGroups()
        self._cached: RecentGroups[tuple[int, list[Row]]] = RecentGroups()
        with self._errors():
            with suppress(OSError):  # it exists, or SQLite says why it cannot be made
                open_private(path, "xb").close()  # the files beside it get the same mode
            self.connection = sqlite3.connect(
                path, timeout=BUSY, check_same_thread=False, isolation_level=None
            )
            try:
                self.connection.execute("pragma journal_mode = wal")
                self.connection.execute(f"pragma synchronous = {'full' if durable else 'off'}")
                self.connection.execute(f"pragma wal_autocheckpoint = {LOG_PAGES}")
                self._open_schema()
                self._check_root()
            except BaseException:
                self.connection.close()
                raise

    def close(self) -> None:
        """Close the file."""
        with self._lock, self._errors():
            self.connection.close()
            if self._counter is not None:
                self._counter.close()

    # -- writing ------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes within, or none.

        Raises:
            StorageError: the disk does not take it, or a group that it changes is damaged.
        """
        with self._lock, self._errors():
            # Immediate: with the write lock from here on, what is read stays true until the commit
            self.connection.execute("begin immediate")
            try:
                yield
                commits = self._seal()
                self.connection.execute("commit")
            except BaseException:
                if self.connection.in_transaction:  # a full disk may have ended it already
                    self.connection.execute("rollback")
                raise
            finally:
                self._touched.clear()
            # After the commit, so that the counter is never ahead of the database
            if self._counter is not None:
                self._counter.note(commits)

    def put(self, table: str, *values: Value) -> None:
        """Insert a row, or replace the one of its key in its place; within a transaction."""
        shape = self._schema.tables[table]
        columns = (*shape.columns, "digest")
        self._touch(table, str(dict(zip(columns, values, strict=False)).get(shape.group, "")))
        # Updated and not replaced: a row keeps its rowid, so also its place in the group's digest
        changed = ", ".join(f"{name} = excluded.{name}" for name in columns)
        self.connection.execute(
            f"insert into {table} values ({', '.join('?' * len(columns))})"
            f" on conflict ({', '.join(shape.key)}) do update set {changed}",
            (*values, row_digest(table, *values)),
        )

    def delete(self, table: str, **where: Value) -> None:
        """Delete the rows that have these values, the group's among them; in a transaction."""
        self._touch(table, str(where.get(self._schema.tables[table].group, "")))
        condition = " and ".join(f"{name} = ?" for name in where)
        self.connection.execute(f"delete from {table} where {condition}", tuple(where.values()))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep every other connection from committing within, which must be short.

        Raises:
            StorageError: another connection writes for longer than SQLite waits.
        """
        with self._lock, self._errors():
            # The write lock alone, which is given back without a write
            self.connection.execute("begin immediate")
            try:
                yield
            finally:
                self.connection.execute("rollback")

    def copy(self, path: Path) -> None:
        """Write one state of the file to another one, unaffected by commits of other processes.

        Within ``snapshot``, it is the state of the snapshot.

        Raises:
            StorageError: the disk does not take it.
        """
        with self._lock, self._errors(path), closing(sqlite3.connect(path)) as other:
            self.connection.backup(other)

    def shrink(self) -> None:
        """Release the space of the write-ahead log, where the disk allows it."""
        with self._lock, suppress(sqlite3.Error):
            self.connection.execute("pragma wal_checkpoint(truncate)")

    # -- reading ------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one state of the file within, unaffected by commits of other processes."""
        with self._lock, self._errors():
            self.connection.execute("begin")
            try:
                self.connection.execute("select commits from root").fetchall()  # reads from here on
                yield
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("rollback")

    def rows(self, table: str, part: str = "") -> list[Row]:
        """Return a group's rows, in the order in which they were inserted.

        The current transaction must not have changed the group. A small group is read once, until
        it changes.

        Raises:
            StorageError: one is damaged or missing.
        """
        with self._lock, self._errors():
            # Changes with every commit of another connection.
            version = self.connection.execute("pragma data_version").fetchone()[0]
            known = self._cached.get((table, part))
            if known is not None and known[0] == version:
                return list(known[1])
            if self.connection.in_transaction:
                rows = self._read(table, part)
            else:
                with self.snapshot():  # rows and their digest of one commit
                    rows = self._read(table, part)
            # Rows of the running transaction may still be rolled back
            if len(rows) <= CACHED_ROWS and (table, part) not in self._touched:
                self._cached.put((table, part), (version, rows))
            return list(rows)

    def _read(self, table: str, part: str) -> list[Row]:
        columns = ", ".join((*self._schema.tables[table].columns, "digest"))
        selected = self._select(columns, table, part)
        rows = [tuple(values) for *values, _ in selected]
        digests = [digest for *_, digest in selected]
        for row, digest in zip(rows, digests, strict=True):
            if digest != row_digest(table, *row):
                raise self._damaged(f"{self._name(table, row)} of its table {table} was changed")
        self._compare(table, part, digests)
        return rows

    def _name(self, table: str, row: Row) -> str:
        """Return the name of a damaged row, by its key, which may be the damaged part."""
        shape = self._schema.tables[table]
        values = dict(zip(shape.columns, row, strict=True))
        return f"the row {', '.join(ascii(values[column])[:80] for column in shape.key)}"

    def _select(self, columns: str, table: str, part: str) -> list[Row]:
        group = self._schema.tables[table].group
        where, values = (f"where {group} = ?", (part,)) if group else ("", ())
        query = f"select {columns} from {table} {where} order by rowid"
        return self.connection.execute(query, values).fetchall()

    # -- digests ------------------------------------------------------------------------------

    def _touch(self, table: str, part: str) -> None:
        """Note that a group changes, and check once that its rows are those that were written."""
        group = (table, part)
        if not self._checked.get(group) and group not in self._touched:
            self._compare(table, part, self._digests(table, part))
            self._checked.put(group, True)
        self._touched.add(group)
        self._cached.drop(group)

    def _digests(self, table: str, part: str) -> list[Value]:
        return [row[0] for row in self._select("digest", table, part)]

    def _compare(self, table: str, part: str, digests: Sequence[Value]) -> None:
        query = "select digest from groups where tbl = ? and part = ?"
        known = self.connection.execute(query, (table, part)).fetchone()
        wanted = (group_digest(digests),) if digests else None
        if known != wanted:
            raise self._damaged(f"rows of its table {table} are missing or of another time")

    def _seal(self) -> int:
        """Digest the groups that changed and the root; return the number of the commit."""
        for table, part in self._touched:
            digests = self._digests(table, part)
            if digests:
                self.connection.execute(
                    "insert into groups values (?, ?, ?)"
                    " on conflict (tbl, part) do update set digest = excluded.digest",
                    (table, part, group_digest(digests)),
                )
            else:
                query = "delete from groups where tbl = ? and part = ?"
                self.connection.execute(query, (table, part))
        commits = int(self.connection.execute("select commits from root").fetchone()[0]) + 1
        self._write_root(commits)
        return commits

    def _write_root(self, commits: int) -> None:
        self.connection.execute(
            "insert or replace into root values (0, ?, ?)", (commits, self._root_digest(commits))
        )

    def _root_digest(self, commits: Value) -> bytes:
        query = "select tbl, part, digest from groups order by tbl, part"
        groups = self.connection.execute(query).fetchall()
        return row_digest(commits, *(value for row in groups for value in row))

    def _check_root(self) -> None:
        """Check that all groups are there, and that no commit is missing."""
        noted = self._noted()  # before the rows: another process may commit in between
        with self.snapshot():
            rows = self.connection.execute("select commits, digest from root").fetchall()
            if len(rows) != 1 or rows[0][1] != self._root_digest(rows[0][0]):
                raise self._damaged("its digests do not fit together")
        self._check_counter(rows[0][0], noted)

    def _noted(self) -> int:
        """Return the number of the last commit that was noted."""
        return self._counter.read() if self._counter is not None else 0

    def _check_counter(self, commits: int, noted: int) -> None:
        if noted > commits:
            raise StorageError(
                f"The last {noted - commits} commits of {self._schema.title} {self._path} are"
                " missing: the file was damaged or replaced by an older one.",
                code="storage.damaged",
                hint="restore all its files from a backup; to continue with the remaining data,"
                f" delete {self._path.name}-commits",
            )

    # -- the file -----------------------------------------------------------------------------

    def _open_schema(self) -> None:
        version = self._version()
        if version > self._schema.version:
            raise StorageError(
                f"{self._path} was written by a newer EdgeFed (state version {version}, "
                f"this one reads {self._schema.version}).",
                code="storage.newer",
                hint="upgrade edgefed, or choose another folder with --state",
            )
        if version == 0:
            self._make_tables()
        elif self._schema.extends and self._schema.extends <= version < self._schema.version:
            with self._schema_change():
                self._create_tables()
        elif version < self._schema.version:
            raise StorageError(
                f"{self._path} was written by an older EdgeFed (state version {version}, "
                f"this one reads {self._schema.version}).",
                code="storage.older",
                hint="finish its runs with that version, then move the folder away; or choose"
                " another folder with --state",
            )

    def _version(self) -> int:
        """Return the version of the tables in the file; 0 when there are none."""
        return int(self.connection.execute("pragma user_version").fetchone()[0])

    def _make_tables(self) -> None:
        """Make the tables of a new file, or of one whose making was cut short."""
        # A counter without tables tells that the file was deleted or replaced
        self._check_counter(0, self._noted())
        with self._schema_change():
            if self._version():  # another process made them meanwhile
                return
            self._create_tables()
            for statement in _OWN_TABLES:
                self.connection.execute(statement)
            self._write_root(0)

    def _create_tables(self) -> None:
        """Create the tables that are not there; the digests of empty ones are none."""
        for name, table in self._schema.tables.items():
            columns = ", ".join(f"{column} {kind}" for column, kind in table.columns.items())
            key = f"primary key ({', '.join(table.key)})"
            self.connection.execute(
                f"create table if not exists {name} ({columns}, digest blob not null, {key})"
            )

    @contextmanager
    def _schema_change(self) -> Iterator[None]:
        """Commit changes of the tables together with the version."""
        self.connection.execute("begin immediate")
        try:
            yield
            self.connection.execute(f"pragma user_version = {self._schema.version}")
            self.connection.execute("commit")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("rollback")
            raise

    @contextmanager
    def _errors(self, path: Path | None = None) -> Iterator[None]:
        """Turn SQLite's errors, for a damaged file too, into EdgeFed errors.

        ``path`` is the file that is written; by default the database itself.
        """
        try:
            yield
        except sqlite3.Error as error:
            raise _error(error, path or self._path, self._schema.title) from error
        except (UnicodeDecodeError, OverflowError, MemoryError) as error:
            # A damaged file's own text in a message of SQLite, or a length out of range.
            raise self._damaged(type(error).__name__) from error

    def _damaged(self, why: str) -> StorageError:
        return _damaged(self._path, self._schema.title, why)


def copy_database(path: Path, target: Path) -> None:
    """Write one state of a database to another file, unaffected by commits of other processes.

    Raises:
        StorageError: it cannot be read, or the disk does not take the copy.
    """
    try:
        source = sqlite3.connect(path, timeout=BUSY)
        with closing(source), closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
    except sqlite3.Error as error:
        raise _error(error, target, f"the database {path}, to be copied to") from error


def _error(error: sqlite3.Error, path: Path, title: str) -> StorageError:
    text = str(error)
    # SQLite reports some full disks as I/O errors
    if "full" in text or ("I/O" in text and free_bytes(path.parent) < NEARLY_FULL):
        return StorageError(
            f"The disk is full: cannot write {path}.",
            code="storage.full",
            hint="free some space; the last committed state is intact",
        )
    check_in_place(path)
    if "readonly" in text and os.statvfs(path.parent).f_flag & os.ST_RDONLY:
        return storage_error(path, OSError(errno.EROFS, text))
    # The class itself is for malformed files; locks, constraints and the like are subclasses
    if type(error) is sqlite3.DatabaseError or "UTF-8" in text:
        return _damaged(path, title, text)
    return StorageError(
        f"Cannot use {title} {path}: {text}.",
        hint="check the folder's permissions and free space, or choose another --state",
    )


def _damaged(path: Path, title: str, why: str) -> StorageError:
    return StorageError(
        f"Cannot use {title} {path}: it is damaged ({why}).",
        code="storage.damaged",
        hint="restore the folder from a backup, or move it away and start the run again",
    )


class RecentGroups(Generic[Remembered]):
    """A value for each of the groups that were used last; the oldest is forgotten for a new one."""

    def __init__(self) -> None:
        self._values: OrderedDict[Group, Remembered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, group: Group) -> Remembered | None:
        """Return a group's value, which counts as a use; None when there is none."""
        value = self._values.get(group)
        if value is not None:
            self._values.move_to_end(group)
        return value

    def put(self, group: Group, value: Remembered) -> None:
        """Remember a value."""
        self._values[group] = value
        self._values.move_to_end(group)
        if len(self._values) > RECENT_GROUPS:
            self._values.popitem(last=False)

    def drop(self, group: Group) -> None:
        """Forget a group."""
        self._values.pop(group, None)


def row_digest(*values: Value) -> bytes:
    """Return the SHA-256 of a row's values; their types and boundaries are part of it."""
    sha = hashlib.sha256()
    for value in values:
        data = value if isinstance(value, bytes) else str(value).encode()
        sha.update(b"%b%d:" % (_TAGS[type(value)], len(data)))
        sha.update(data)
    return sha.digest()


def group_digest(digests: Iterable[Any]) -> bytes:
    """Return the SHA-256 over the digests of a group's rows, in their order."""
    return row_digest(*digests)


_LINE = re.compile(rb"(\d{20}) ([0-9a-f]{8})\n")


class CommitCounter:
    """The number of the last commit in a file beside the database, to detect lost commits.

    SQLite reads a damaged write-ahead log only up to the damage and silently drops all later
    commits. The counter is written after each commit, in place. A kill or a power cut can therefore
    leave it behind the database, which is harmless, but never ahead of it.

    Args:
        path: the file; made at the first commit.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def read(self) -> int:
        """Return the last stored number of a commit, 0 without a file.

        Raises:
            StorageError: the file is damaged.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise storage_error(self._path, error) from error
        match = _LINE.fullmatch(data)
        if match is None or _checksum(match[1]) != match[2]:
            raise StorageError(
                f"{self._path} is damaged.",
                code="storage.damaged",
                hint=f"restore it from a backup; without {self._path.name}, it is not detected"
                " if the last commits are missing",
            )
        return int(match[1])

    def note(self, number: int) -> None:
        """Overwrite the number; failing only weakens the check."""
        digits = b"%020d" % number
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
                self._file = os.open(self._path, flags, PRIVATE_FILE)
            os.pwrite(self._file, digits + b" " + _checksum(digits) + b"\n", 0)
        except OSError as error:
            log.warning("the commit counter %s was not written: %s", self._path, error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _checksum(digits: bytes) -> bytes:
    return b"%08x" % zlib.crc32(digits)
