"""The device's store: blobs, unmerged replies, the state of each run, and state across runs.

A reply, its private state, the state that outlives the run and the entries of the ledger are
committed in one transaction, keyed by the exchange, before the reply is sent. If the same exchange
is asked again, the device replies from the store. Rows have digests (``edgefed.database``) and
blobs are named by their digests, so damage is reported, and damaged data is never used.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from device_agent.tasks.release_ledger import LEDGER_TABLE, Ledger, LedgerRow
from device_agent.tasks.training_messages import TrainingOrder
from edgefed.database.database import Database, DatabaseTable, Schema
from edgefed.errors import StorageError, UnknownNameError, WireError
from edgefed.files.writing import make_folder, write_atomic
from edgefed.sharing.releases import labels_release
from edgefed.wire.blobs import BlobCache
from edgefed.wire.chunk_staging import prune
from edgefed.wire.envelope import decode, encode, is_understood
from edgefed.wire.messages import Birth, Reply, Task
from edgefed.wire.tensors import pack

if TYPE_CHECKING:
    from edgefed.algorithms.interface.device_side import LedgerEntry
    from edgefed.learn.base.types import Tensors

log = logging.getLogger(__name__)

SCHEMA, EXTENDS = 3, 2
"""Version of the database, and the oldest to which it only adds tables; others are refused."""

RUNS_KEPT = 4
"""Runs whose private state is kept; older ones are forgotten."""

_TABLES = {
    "replies": DatabaseTable(
        {
            "exchange": "text not null",
            "run": "text not null",
            "position": "integer not null",
            "reply": "blob not null",
            "blobs": "text not null",
        },
        ("exchange",),
    ),
    "private": DatabaseTable(
        {"run": "text not null", "blob": "text not null", "used": "integer not null"}, ("run",)
    ),
    "device_state": DatabaseTable({"name": "text not null", "blob": "text not null"}, ("name",)),
    "ledger": LEDGER_TABLE,
}

CACHED_BLOBS = 1024
"""Blobs of a device, which needs only the pinned ones: those of its last task and its replies."""

KEPT_BETWEEN_RUNS = 256 * 1024**2
"""Most bytes of frozen weights that are kept for the next run, which often has the same."""

_FROZEN = "frozen"
"""In the agent's state folder: the digest of the frozen weights that were used last."""

_SCHEMA = Schema(SCHEMA, _TABLES, "the agent's database", EXTENDS)
_DATABASE = "agent.db"


_NO_GROUPS: Mapping[str, Tensors] = MappingProxyType({})


@dataclass(frozen=True)
class _Kept:
    """A row of the replies: the message, still packed, and the blobs that it names."""

    exchange: str
    run: str
    index: int
    packed: bytes
    blobs: tuple[str, ...]


class DeviceStore:
    """A device's state directory.

    Args:
        folder: created when missing.
        cache_bytes: most bytes of blobs.

    Raises:
        StorageError: the folder cannot be used, is damaged, or was written by another version.
    """

    def __init__(self, folder: Path, cache_bytes: int) -> None:
        make_folder(folder)
        self.folder = folder
        self.staging = folder / "staging"
        self._db = self._open()
        self._ledger = Ledger(self._db)
        try:
            self.cache = BlobCache(
                folder / "blobs", cache_bytes, pinned=self._held(), limit_blobs=CACHED_BLOBS
            )
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> Database:
        """Open the database; on a full disk, in the place of blobs that were half received."""
        path = self.folder / _DATABASE
        try:
            return Database(path, _SCHEMA)
        except StorageError as error:
            if error.code != "storage.full":
                raise
            prune(self.staging, ())
            return Database(path, _SCHEMA)

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def reply(self, exchange: str) -> Reply | None:
        """Return the reply to an exchange, if it was made and is kept.

        Raises:
            StorageError: a blob that it names is damaged.
        """
        for kept in self._kept():
            if kept.exchange == exchange and is_understood(kept.packed):
                for digest in kept.blobs:
                    self._check_blob(digest, f"the reply to {exchange}")
                return _reply(kept)
        return None

    def replies(self) -> list[Reply]:
        """Return all kept replies, oldest first, but for those of another protocol version.

        Their exchanges are put anew, under other names, by a coordinator of this version.
        """
        kept = [row for row in self._kept() if is_understood(row.packed)]
        return [_reply(row) for row in kept]

    def offers(self, digest: str) -> bool:
        """Whether a kept reply names a blob; no other ever leaves this device."""
        return any(digest in kept.blobs for kept in self._kept())

    def order(self, task: Task) -> TrainingOrder:
        """Return a task with the digests of the state that its training starts from.

        Raises:
            StorageError: a blob of it is damaged; training without it would give another model.
        """
        private, groups = self._private().get(task.run, ""), self._device_state()
        if private:
            self._check_blob(private, f"the private state of run {task.run}")
        for name, digest in groups.items():
            self._check_blob(digest, f"the device state {name}")
        ledger = tuple(release.entry for release in self._ledger.releases())
        return TrainingOrder(task, private, groups, ledger)

    def note_frozen(self, digest: str) -> None:
        """Remember the frozen weights that a run uses, beyond its end and a restart."""
        if digest != self._frozen():
            write_atomic(self.folder / _FROZEN, digest.encode())

    def drop_blobs(self, keep: Collection[str] = ()) -> None:
        """Delete the blobs of tasks; those that are pinned, and the frozen weights, stay.

        Args:
            keep: blobs that a task is about to need.
        """
        frozen = self._frozen()
        fits = (self.cache.size(frozen) or 0) <= KEPT_BETWEEN_RUNS
        self.cache.shed({*keep, frozen} if fits else keep)

    def _frozen(self) -> str:
        try:
            return (self.folder / _FROZEN).read_text(errors="replace")
        except OSError:
            return ""

    def free_space(self, keep: Collection[str]) -> int:
        """Delete files that can be fetched again; return the number of bytes.

        Args:
            keep: blobs that are on their way; their chunks stay.
        """
        freed = self.cache.shed()
        prune(self.staging, keep)
        self._db.shrink()
        return freed

    def commit(
        self,
        reply: Reply,
        blobs: Mapping[str, bytes],
        private: Mapping[str, Tensors] | None,
        device_state: Mapping[str, Tensors] = _NO_GROUPS,
        ledger: Sequence[LedgerEntry] = (),
        time: str = "",
    ) -> None:
        """Store a reply, its blobs and its changes of the device's state, in one transaction.

        An exchange whose reply is kept already changes nothing.

        Args:
            reply: to an exchange.
            blobs: that it names, by digest.
            private: replaces the run's private state; None leaves it.
            device_state: groups that replace those of their names; an empty one deletes it.
            ledger: entries to append.
            time: of the commit, for the ledger.

        Raises:
            StorageError: the disk is full; nothing of the reply is kept.
        """
        if any(kept.exchange == reply.exchange for kept in self._kept()):
            return
        pins: list[str] = []
        try:
            state_blob = _packed(private) if private else b""
            group_blobs = {n: pack(arrays) if arrays else b"" for n, arrays in device_state.items()}
            new = [*blobs.values(), state_blob, *group_blobs.values()]
            self.cache.put_all([data for data in new if data])
            digests = [self._keep(data, pins) for data in blobs.values()]
            state = self._keep(state_blob, pins) if state_blob else ""
            groups = {
                name: self._keep(data, pins) if data else "" for name, data in group_blobs.items()
            }
            releases: tuple[LedgerRow, ...] = ()
            if ledger:
                releases = self._ledger.next_releases(ledger, time, reply.run, reply.exchange)
            replaced = self._write(reply, digests, state, groups, releases)
        except BaseException:
            for digest in pins:
                self.cache.unpin(digest)
            raise
        if releases:
            self._ledger.committed(releases)
        for digest in replaced:
            self.cache.unpin(digest)
        try:
            self._forget_old_runs()
        except StorageError as error:  # the reply is kept; the next commit tries again
            log.warning("old runs were not forgotten: %s", error.message)

    def note_birth(self, birth: Birth, time: str) -> None:
        """Append the label counts in a birth to the ledger, before it is published.

        The same samples are noted once, even if the agent starts several times.

        Raises:
            StorageError: the disk is full, or the ledger is damaged.
        """
        if not birth.labels:
            return
        present = sum(count > 0 for count in birth.labels)
        entry = {**labels_release(0, birth.samples, present), "data": birth.data}
        try:
            self._ledger.append_once(entry, time)
        except StorageError as error:
            if error.code != "storage.full":
                raise
            self.free_space(())
            self._ledger.append_once(entry, time)

    def _write(
        self,
        reply: Reply,
        digests: list[str],
        state: str,
        groups: Mapping[str, str],
        releases: Sequence[LedgerRow],
    ) -> list[str]:
        """Write the rows of a reply and its changes; return the blobs that it replaces."""
        before = self._device_state()
        replaced = [before[name] for name in groups if name in before]
        if state and (old := self._private().get(reply.run)):
            replaced.append(old)
        used = max((int(str(stored[2])) for stored in self._db.rows("private")), default=0)
        row = (reply.exchange, reply.run, reply.index, encode(reply), " ".join(digests))
        with self._db.transaction():
            self._db.put("replies", *row)
            if state:
                self._db.put("private", reply.run, state, used + 1)
            for name, digest in groups.items():
                if digest:
                    self._db.put("device_state", name, digest)
                else:
                    self._db.delete("device_state", name=name)
            if releases:
                self._ledger.put(releases)
        return replaced

    def forget(self, run: str, through: int) -> None:
        """Delete the replies of a run up to an exchange index.

        Raises:
            StorageError: the disk does not take it; they are kept.
        """
        over = [kept for kept in self._kept() if kept.run == run and kept.index <= through]
        if over:
            with self._db.transaction():
                for kept in over:
                    self._db.delete("replies", exchange=kept.exchange)
        for kept in over:
            for digest in kept.blobs:
                self.cache.unpin(digest)

    def _forget_old_runs(self) -> None:
        newest = sorted(self._db.rows("private"), key=lambda row: -int(str(row[2])))
        for run, digest, _ in newest[RUNS_KEPT:]:
            with self._db.transaction():
                self._db.delete("private", run=run)
            self.cache.unpin(str(digest))
            self.forget(str(run), 2**53)
        # A run that keeps no private state, and was ended while this device was away.
        last = dict.fromkeys(kept.run for kept in reversed(self._kept()))
        for old_run in list(last)[RUNS_KEPT:]:
            self.forget(old_run, 2**53)

    def _keep(self, data: bytes, pins: list[str]) -> str:
        """Put a blob into the cache, pin it, and note the pin."""
        digest = self.cache.put(data)
        self.cache.pin(digest)
        pins.append(digest)
        return digest

    def _check_blob(self, digest: str, what: str) -> None:
        if not self.cache.intact(digest):
            raise StorageError(
                f"A blob of {what} is damaged or missing in {self.folder}.",
                code="storage.damaged",
                hint="restore the folder from a backup, or move it away; the device then starts"
                " without its private state",
            )

    def _kept(self) -> list[_Kept]:
        return [
            _Kept(str(exchange), str(run), int(str(index)), packed, tuple(str(blobs).split()))
            for exchange, run, index, packed, blobs in self._db.rows("replies")
            if isinstance(packed, bytes)
        ]

    def _private(self) -> dict[str, str]:
        """Return the blob of each run's private state."""
        return {str(run): str(blob) for run, blob, _ in self._db.rows("private")}

    def _device_state(self) -> dict[str, str]:
        """Return the blob of each group of arrays that outlives runs."""
        return {str(name): str(blob) for name, blob in self._db.rows("device_state")}

    def _held(self) -> list[str]:
        replies = (digest for kept in self._kept() for digest in kept.blobs)
        return [*self._private().values(), *self._device_state().values(), *replies]


def read_releases(folder: Path, device: str) -> tuple[LedgerRow, ...]:
    """Return the ledger in a device's state directory, whether or not its agent runs.

    Raises:
        UnknownNameError: no agent of that name ever ran here.
        StorageError: it is damaged, or was written by another version.
    """
    if not (folder / _DATABASE).exists():
        raise UnknownNameError(
            f"No agent named {device} has run with state in {folder}.",
            code="agent.unknown",
            hint="start it with edgefed-agent run, or give its --name, --fleet and --state",
        )
    with closing(Database(folder / _DATABASE, _SCHEMA)) as database, database.snapshot():
        return Ledger(database).releases()


def _reply(kept: _Kept) -> Reply:
    try:
        return decode(kept.packed, Reply)
    except WireError as error:
        raise StorageError(
            f"The reply to {kept.exchange} is stored in a format that this version cannot read.",
            code="storage.older",
            hint="use the version of EdgeFed that wrote it, or move the agent's folder away",
        ) from error


def _packed(private: Mapping[str, Tensors]) -> bytes:
    return pack(
        {
            f"{group}|{key}": array
            for group, tensors in private.items()
            for key, array in tensors.items()
        }
    )
