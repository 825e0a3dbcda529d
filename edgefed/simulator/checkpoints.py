"""Checkpoints of a simulation between two rounds, from which it goes on after a kill.

A checkpoint is one commit to a database in the run's folder of blobs. It has the rows of the run,
the state of the fleet, and the states of those devices that were asked since the checkpoint before.
The arrays of the algorithm's state and the blobs stay in their files, and are kept for as long as
the last checkpoint names them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any
from zlib import crc32

import msgpack

from edgefed.algorithms.interface.base import State
from edgefed.coordinator.devices.trust_scores import Trust, TrustScores
from edgefed.coordinator.rounds.engine_deps import BetweenRounds
from edgefed.coordinator.rounds.label_audit import AUDIT
from edgefed.coordinator.rounds.run_beginning import check_resumable
from edgefed.coordinator.storage.run_store import RunRows, Store, run_record
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.database.database import Database, DatabaseTable, Schema
from edgefed.errors import StorageError
from edgefed.files.writing import storage_error
from edgefed.simulator.device_states import FleetState
from edgefed.simulator.local_fleet import LocalFleet
from edgefed.simulator.serialization import packed_groups, read_groups
from edgefed.simulator.virtual_time import VirtualTime
from edgefed.wire.blobs import BlobCache

FILE = "checkpoint.db"

SECONDS = 2.0
"""Least time between two checkpoints: a kill costs about as much work, and a start takes longer."""

SHARE = 50
"""The time between two checkpoints, in times that the last one took: they take 2 % of a run."""

_PARTS = 256
"""Groups of devices. A commit digests the groups with a changed device, and the list of groups."""

EVENTS = "events.jsonl"

_SCHEMA = Schema(
    1,
    {
        "parts": DatabaseTable({"name": "text not null", "value": "blob not null"}, ("name",)),
        "devices": DatabaseTable(
            {"part": "text not null", "device": "text not null", "state": "blob not null"},
            ("device",),
            "part",
        ),
        "replies": DatabaseTable(
            {"exchange": "text not null", "device": "text not null", "reply": "blob not null"},
            ("exchange", "device"),
        ),
    },
    "the checkpoint of the simulation",
)


@dataclass(frozen=True)
class SimulationCheckpoint:
    """The last checkpoint of a run.

    Attributes:
        record: the run's row.
        seconds: virtual ones.
        sizes: of the files to which lines are appended, by name.
        trust: of the devices.
    """

    record: RunRecord
    rows: RunRows
    between: BetweenRounds
    fleet: FleetState
    seconds: float
    sizes: dict[str, int]
    trust: tuple[Trust, ...]


class Checkpoints:
    """Writes the checkpoints of one run, and has the last one; see ``RoundCheckpoints``.

    Args:
        work: the run's folder of blobs.
        store: of the run.
        now: returns the seconds of a clock.
        every: least seconds between two checkpoints; 0 for one after each round.

    Attributes:
        latest: the checkpoint that a killed process has left; None without one.

    Raises:
        StorageError: ``storage.damaged``, ``run.checkpoint``: it cannot be read.
    """

    def __init__(
        self,
        work: Path,
        store: Store,
        now: Callable[[], float] = monotonic,
        every: float = SECONDS,
    ) -> None:
        self._store = store
        self._db = Database(work / FILE, _SCHEMA, durable=False)
        self._now = now
        self._every = every
        self._next = now() + every
        self._tested = 0
        self._replies: set[tuple[str, str]] = set()
        self.latest = self._read()
        self.last = None if self.latest is None else self.latest.between

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def go_back(self) -> None:
        """Let the run in the store, and its files, go on from the checkpoint that was found.

        Raises:
            StorageError: a file that it needs is missing or damaged.
        """
        assert self.latest is not None
        record, folder = self.latest.record, self._store.run_folder(self.latest.record.run)
        self._store.go_back(record, self.latest.rows)
        check_resumable(self._store, record)
        self._store.hold_state(self.latest.rows)
        for name, size in self.latest.sizes.items():
            _shorten(folder / name, size)

    def begin(
        self,
        fleet: LocalFleet,
        time: VirtualTime | None,
        trust: TrustScores,
        cache: BlobCache,
    ) -> None:
        """Take the parts of the simulation, with the state of the checkpoint that was found.

        Raises:
            StorageError: ``storage.damaged``: a blob that the run needs is missing.
        """
        self._fleet, self._time, self._trust, self._cache = fleet, time, trust, cache
        self._pinned: frozenset[str] = frozenset()
        if self.latest is None:
            return
        fleet.restore(self.latest.fleet)
        trust.restore(self.latest.trust)
        self._pinned = frozenset(self._store.blobs(self.latest.record.run, versions=True))
        if missing := [digest for digest in sorted(self._pinned) if not cache.intact(digest)]:
            raise StorageError(
                f"The run cannot go on: its blob {missing[0][:12]} is missing or damaged.",
                code="storage.damaged",
                hint="restore the folder from a backup, or choose another one with --out",
            )

    def is_due(self) -> bool:
        """Whether to write a checkpoint after the round that was closed now."""
        return self._now() >= self._next

    def save(self, record: RunRecord, between: BetweenRounds) -> None:
        """Write a checkpoint; it may be repeated.

        Raises:
            StorageError: the disk does not take it.
        """
        begun, tested, run = self._now(), between.tested, record.run
        fleet = self._fleet.state(self._replies)
        rows = self._store.rows_to_go_on(run, () if tested is None else (tested.round,))
        folder = self._store.run_folder(run)
        values = {
            "record": json.dumps(asdict(record)),
            "rows": rows,
            "settled_through": dict(between.settled_through),
            "times": [[*place, times] for place, times in fleet.times.items()],
            "seconds": 0.0 if self._time is None else self._time.clock.monotonic(),
            "sizes": {name: _size(folder / name) for name in (EVENTS, AUDIT)},
            "trust": [asdict(trust) for trust in self._trust.all()],
        }
        pinned = frozenset(self._store.blobs(run, versions=True))
        # New blobs are pinned before the commit names them, and old ones let go after it
        self._pin(pinned - self._pinned)
        try:
            with self._db.transaction():
                self._db.put("parts", "run", msgpack.packb(values))
                self._put_tested(tested)
                self._put_fleet(fleet)
        except BaseException:
            self._unpin(pinned - self._pinned)
            raise
        self._fleet.saved()
        self._store.hold_state(rows)
        self._unpin(self._pinned - pinned)
        self._pinned, self._tested = pinned, 0 if tested is None else tested.round
        # Those in the file whose tasks are still open
        self._replies = (self._replies | fleet.replies.keys()) & fleet.times.keys()
        ended = self._now()
        if self._every:
            self._next = ended + max(self._every, SHARE * (ended - begun))

    def _put_fleet(self, fleet: FleetState) -> None:
        """Write what changed of the fleet, and delete the replies that are merged."""
        for device, state in fleet.devices.items():
            self._db.put("devices", _part(device), device, state)
        for (exchange, device), reply in fleet.replies.items():
            self._db.put("replies", exchange, device, reply)
        for exchange, device in self._replies - fleet.times.keys():
            self._db.delete("replies", exchange=exchange, device=device)

    def _put_tested(self, tested: State | None) -> None:
        """Write the state that devices test, once."""
        if tested is None:
            self._db.delete("parts", name="tested")
        elif tested.round != self._tested:
            value = [tested.round, packed_groups(tested.groups), json.dumps(tested.params)]
            self._db.put("parts", "tested", msgpack.packb(value))

    def _pin(self, digests: Iterable[str]) -> None:
        for digest in digests:
            self._cache.pin(digest)

    def _unpin(self, digests: Iterable[str]) -> None:
        """Unpin blobs, and delete those that nobody else has pinned."""
        for digest in digests:
            self._cache.unpin(digest)
            self._cache.discard(digest)

    def _read(self) -> SimulationCheckpoint | None:
        """Return the last checkpoint that was written; None without one."""
        parts = {str(name): _unpacked(value) for name, value in self._db.rows("parts")}
        if "run" not in parts:
            return None
        run, tested = parts["run"], None
        if "tested" in parts:
            number, groups, params = parts["tested"]
            tested = State(number, read_groups(groups), json.loads(params))
            self._tested = number
        devices = (row for part in range(_PARTS) for row in self._db.rows("devices", str(part)))
        replies = {(str(e), str(d)): _bytes(reply) for e, d, reply in self._db.rows("replies")}
        self._replies = set(replies)
        return SimulationCheckpoint(
            run_record(run["record"]),
            run["rows"],
            BetweenRounds(run["settled_through"], tested),
            FleetState(
                {str(device): _bytes(state) for _, device, state in devices},
                replies,
                {(exchange, device): times for exchange, device, times in run["times"]},
            ),
            run["seconds"],
            run["sizes"],
            tuple(Trust(**trust) for trust in run["trust"]),
        )


def _part(device: str) -> str:
    """Return the group of a device."""
    return str(crc32(device.encode()) % _PARTS)


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


def _unpacked(value: object) -> Any:
    return msgpack.unpackb(_bytes(value))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _shorten(path: Path, size: int) -> None:
    """Cut off the lines that were appended to a file since the checkpoint.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        if _size(path) > size:
            os.truncate(path, size)
    except OSError as error:
        raise storage_error(path, error) from error
