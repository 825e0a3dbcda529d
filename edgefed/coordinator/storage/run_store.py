"""Runs on disk: SQLite for rows, safetensors for weights; committed after every exchange.

``edgefed.db`` holds runs, rounds, open exchanges and orders about label bounties. A run's folder
holds ``recipe.toml``, ``events.jsonl``, model files and the algorithm's state of the last commit
(``edgefed.coordinator.storage.state_files``). A state file is written and renamed before the row
that names
it is committed, so a kill at any moment leaves the old state or the new one. Rows have digests
(``edgefed.database``), and the row of a commit has the digests of its state files. A read returns
the written values or raises a ``StorageError``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, fields, replace
from pathlib import Path
from typing import Any

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Relay, ReplyRole
from edgefed.coordinator.storage.run_names import only_match
from edgefed.coordinator.storage.state_files import Layout, StateFiles, write_arrays
from edgefed.coordinator.storage.stored_runs import Checkpoint, OpenExchange, RunRecord
from edgefed.database.database import Database, DatabaseTable, Row, Schema
from edgefed.errors import NotAllowedError, StorageError, WireError
from edgefed.events.base.model import UNFINISHED
from edgefed.events.history.early_stopping import DEVICE_TESTS, MEASURED, SETTLED
from edgefed.files.code_versions import read_versions
from edgefed.files.writing import make_folder, storage_error, write_atomic
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_file_reader import MODEL_FILE
from edgefed.sharing.bounty_report import BountyAction, BountyOrder
from edgefed.wire.envelope import decode, encode, is_understood
from edgefed.wire.messages import BlobRef, Task

LAST_DELETED = ".last-deleted"
"""The file in the folder of runs with the highest number of one that was deleted."""

DELETED = ".deleted"

SCHEMA = 3
"""Version of the state directory; another one is refused, never half-read."""

_TABLES = {
    "runs": DatabaseTable({"run": "text not null", "record": "text not null"}, ("run",)),
    "checkpoints": DatabaseTable(
        {
            "run": "text not null",
            "round": "integer not null",
            "layout": "text not null",
            "params": "text not null",
            "downlink": "text not null",
        },
        ("run",),
        "run",
    ),
    "exchanges": DatabaseTable(
        {"run": "text not null", "exchange": "text not null", "record": "text not null"},
        ("run", "exchange"),
        "run",
    ),
    "tasks": DatabaseTable(
        {
            "run": "text not null",
            "exchange": "text not null",
            "device": "text not null",
            "task": "blob not null",
        },
        ("run", "exchange", "device"),
        "run",
    ),
    "rounds": DatabaseTable(
        {"run": "text not null", "round": "integer not null", "record": "text not null"},
        ("run", "round"),
        "run",
    ),
    "confusions": DatabaseTable(
        {"run": "text not null", "place": "text not null", "record": "text not null"},
        ("run", "place"),
        "run",
    ),
    "relays": DatabaseTable(
        {
            "run": "text not null",
            "exchange": "text not null",
            "sender": "text not null",
            "receiver": "text not null",
            "blob": "text not null",
            "size": "integer not null",
        },
        ("exchange", "sender", "receiver"),
    ),
    "devices": DatabaseTable({"device": "text not null"}, ("device",)),
    "bounty_orders": DatabaseTable(
        {"run": "text not null", "number": "integer not null", "record": "text not null"},
        ("run", "number"),
        "run",
    ),
}

_GO_ON = ("checkpoints", "exchanges", "tasks")

RunRows = dict[str, Sequence[Row]]
"""Rows of a run, by table."""


class Store:
    """The coordinator's state directory; safe from any thread.

    Args:
        folder: created when missing.
        durable: whether a commit waits for the disk; a simulation need not.

    Raises:
        StorageError: the folder cannot be used, is damaged, or was written by another version.
    """

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder = make_folder(folder)
        self._durable = durable
        self._files = StateFiles(durable=durable)
        self._unwritten: dict[str, RunRecord] = {}
        schema = Schema(SCHEMA, _TABLES, "the run database")
        self._db = Database(folder / "edgefed.db", schema, durable=durable)

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def shrink(self) -> None:
        """Give back the disk space that the database does not need."""
        self._db.shrink()

    # -- runs ---------------------------------------------------------------------------------

    def run_folder(self, run: str) -> Path:
        """Return the folder of a run's files."""
        return self.folder / "runs" / run

    def next_number(self) -> int:
        """Return the number of the next run, counted from 1; one that was deleted is not reused."""
        numbers = [int(str(run).split("-")[1]) for run, _ in self._db.rows("runs")]
        return max((*numbers, self._last_deleted()), default=0) + 1

    def delete_run(self, record: RunRecord, *, at_work: bool = False) -> None:
        """Delete the folder and the rows of a run that has ended.

        A kill at any moment leaves the run, or a row without files, which can be deleted again.

        Args:
            record: the run's row.
            at_work: whether it is still being executed.

        Raises:
            NotAllowedError: ``run.busy``: it has not ended.
            StorageError: the disk does not take it.
        """
        run, runs = record.run, self.folder / "runs"
        if at_work or record.status in UNFINISHED:
            raise NotAllowedError(
                f"Run {run} has not ended: it is {record.status}.",
                code="run.busy",
                hint=f"end it first: edgefed run finish {run}, or edgefed run abort {run}",
            )
        number = max(int(run.split("-")[1]), self._last_deleted())
        write_atomic(runs / LAST_DELETED, str(number).encode())
        try:
            with suppress(FileNotFoundError):
                self.run_folder(run).rename(runs / f".{run}{DELETED}")
        except OSError as error:
            raise storage_error(self.run_folder(run), error) from error
        with self._db.transaction():
            for name, table in _TABLES.items():
                if "run" in table.columns:
                    self._db.delete(name, run=run)
        self._unwritten.pop(run, None)
        for left in runs.glob(f".*{DELETED}"):
            shutil.rmtree(left, ignore_errors=True)

    def _last_deleted(self) -> int:
        """Return the highest number of a run that was deleted; 0 for none."""
        try:
            return int((self.folder / "runs" / LAST_DELETED).read_text())
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            raise StorageError(
                f"{self.folder / 'runs' / LAST_DELETED} cannot be read.",
                code="storage.damaged",
                hint="write the highest number of a run that was deleted into it",
            ) from error

    def save_run(self, record: RunRecord) -> None:
        """Insert or replace a run's row."""
        with self._writing(record):
            pass

    def show_unwritten(self, record: RunRecord) -> None:
        """Show a row that the disk does not take; it is written with the next one that it does."""
        self._unwritten[record.run] = record

    @contextmanager
    def _writing(self, record: RunRecord) -> Iterator[None]:
        """Write a run's row in one transaction with the writes of the block.

        An ended run has no blobs on their way between devices.
        """
        unwritten = dict(self._unwritten)
        with self._db.transaction():
            for unsaved in {**unwritten, record.run: record}.values():
                self._db.put("runs", unsaved.run, json.dumps(asdict(unsaved)))
                if unsaved.status not in UNFINISHED:
                    self._db.delete("relays", run=unsaved.run)
            yield
        for run, shown in unwritten.items():
            if self._unwritten.get(run) is shown:
                del self._unwritten[run]

    def runs(self) -> list[RunRecord]:
        """Return all runs, newest first."""
        records = []
        for run, text in reversed(self._db.rows("runs")):
            with _readable(f"run {run!s}"):
                records.append(run_record(str(text)))
        return [self._unwritten.get(record.run, record) for record in records]

    def run(self, name: str) -> RunRecord:
        """Return the run of an id, or of an unambiguous beginning of one.

        Raises:
            UnknownNameError: none or several match.
        """
        records = self.runs()
        run = only_match(name, [record.run for record in records])
        return next(record for record in records if record.run == run)

    # -- devices ------------------------------------------------------------------------------

    def devices(self) -> set[str]:
        """Return the devices that have taken part, and those that an unfinished run asks."""
        runs = [record.run for record in self.runs() if record.status in UNFINISHED]
        asked = {str(device) for run in runs for _, _, device, _ in self._db.rows("tasks", run)}
        return asked | {str(device) for (device,) in self._db.rows("devices")}

    def add_devices(self, devices: Iterable[str]) -> None:
        """Note devices that have taken part."""
        with self._db.transaction():
            for device in devices:
                self._db.put("devices", device)

    def forget_device(self, device: str) -> None:
        """Forget that a device has taken part."""
        with self._db.transaction():
            self._db.delete("devices", device=device)

    # -- orders -------------------------------------------------------------------------------

    def add_bounty_order(
        self, run: str, action: BountyAction, device: str, label: int | None
    ) -> int:
        """Write down an operator's order about label bounties and return its number."""
        with self._db.transaction():
            number = len(self._db.rows("bounty_orders", run)) + 1
            order = BountyOrder(number, action, device, label)
            self._db.put("bounty_orders", run, number, json.dumps(asdict(order)))
        return number

    def bounty_orders(self, run: str) -> list[BountyOrder]:
        """Return the orders about a run's label bounties, oldest first."""
        with _readable(f"the label orders of run {run}"):
            rows = self._db.rows("bounty_orders", run)
            return [BountyOrder(**json.loads(str(text))) for _, _, text in rows]

    # -- checkpoints --------------------------------------------------------------------------

    def begin_questions(
        self,
        record: RunRecord,
        questions: Iterable[OpenExchange],
        downlink: Mapping[str, Any],
        *,
        settles: Iterable[OpenExchange] = (),
    ) -> None:
        """Write down questions of buffered rounds before they are put, and close others."""
        run = record.run
        with self._writing(record):
            self._put_downlink(run, downlink)
            for opened in settles:
                self._forget_exchange(run, opened)
            for opened in questions:
                self._put_exchange(run, opened)

    def _put_downlink(self, run: str, downlink: Mapping[str, Any]) -> None:
        for _, number, layout, params, _ in self._db.rows("checkpoints", run):
            self._db.put("checkpoints", run, number, layout, params, json.dumps(downlink))

    def begin_exchange(
        self,
        record: RunRecord,
        exchange: OpenExchange,
        downlink: Mapping[str, Any],
        *,
        closes: OpenExchange | None = None,
        discarded: Iterable[Relay] = (),
    ) -> None:
        """Write down an exchange before it is put to anybody.

        The run's other open exchanges stay open, except ``closes``, which it replaces.
        ``discarded`` are blobs between devices that are not to be delivered.
        """
        run = record.run
        with self._writing(record):
            self._put_downlink(run, downlink)
            self._forget_exchange(run, closes)
            self._forget_relays(run, discarded)
            self._put_exchange(run, exchange)

    def renumber(self, record: RunRecord, exchanges: Iterable[OpenExchange]) -> None:
        """Write a run's row, and its open exchanges in place of those that are there."""
        with self._writing(record):
            self._db.delete("exchanges", run=record.run)
            self._db.delete("tasks", run=record.run)
            for exchange in exchanges:
                self._put_exchange(record.run, exchange)

    def commit(
        self,
        record: RunRecord,
        state: State,
        downlink: Mapping[str, Any],
        sent: Iterable[Relay] = (),
        delivered: Iterable[Relay] = (),
        *,
        closes: OpenExchange | None = None,
        settles: Iterable[OpenExchange] = (),
    ) -> State:
        """Write a run's state and close the exchange that was merged into it, in one step.

        Returns the state, whose large arrays may be mapped from its files.

        ``sent`` and ``delivered`` are blobs between devices, of its answers and of its tasks.
        ``settles`` are the questions of buffered rounds that are closed in this step.
        """
        folder, file = self.run_folder(record.run), f"state-{record.exchanges:06d}.safetensors"
        layout = self._files.write(folder, file, state.groups)
        texts = (json.dumps(layout.to_json()), json.dumps(state.params), json.dumps(downlink))
        with self._writing(record):
            self._db.put("checkpoints", record.run, state.round, *texts)
            for opened in (closes, *settles):
                self._forget_exchange(record.run, opened)
            self._forget_relays(record.run, delivered)
            for relay in sent:
                self._db.put("relays", record.run, *astuple(relay))
        return replace(state, groups=self._files.committed(folder, layout, state.groups))

    def close_exchange(self, run: str, exchange: OpenExchange) -> None:
        """Forget an open exchange of a run; its state is as it was."""
        with self._db.transaction():
            self._forget_exchange(run, exchange)

    def save_round(
        self,
        record: RunRecord,
        row: Mapping[str, Any],
        confusions: Iterable[Mapping[str, Any]] = (),
        *,
        closes: OpenExchange | None = None,
    ) -> None:
        """Write a finished round and the run's row, and close the exchange that tested it.

        ``confusions`` are the counts of its evaluation, which replace those of an earlier round.

        In one step, since an exchange that was closed alone would, after a restart, be asked again
        under a new index, from which the seeds of all later exchanges derive.
        """
        with self._writing(record):
            self._db.put("rounds", record.run, row["round"], json.dumps(row))
            for confusion in confusions:
                self._db.put("confusions", record.run, confusion["place"], json.dumps(confusion))
            self._forget_exchange(record.run, closes)

    def checkpoint(self, run: str) -> Checkpoint | None:
        """Return the progress of a run, or None when it has not begun.

        Raises:
            StorageError: its rows or files are damaged.
        """
        rows = self._db.rows("checkpoints", run)
        if not rows:
            return None
        with _readable(f"the state of run {run}"):
            _, number, *texts = rows[0]
            layout, params, downlink = (json.loads(str(text)) for text in texts)
            groups = self._files.read(self.run_folder(run), Layout.from_json(layout))
            state = State(round=int(str(number)), groups=groups, params=params)
            return Checkpoint(state, downlink, self._open_exchanges(run))

    def check_checkpoint(self, run: str) -> bool:
        """Check that the state of a run's last commit can be read; return whether there is one.

        Raises:
            StorageError: its rows or files are damaged or missing.
        """
        rows = self._db.rows("checkpoints", run)
        with _readable(f"the state of run {run}"):
            for _, _, layout, _, _ in rows:
                checkpoint_layout = Layout.from_json(json.loads(str(layout)))
                self._files.check(self.run_folder(run), checkpoint_layout)
            self._open_exchanges(run)
        return bool(rows)

    def blobs(self, run: str, *, versions: bool = False) -> set[str]:
        """Return the digests of the blobs that a run needs to go on: devices may ask for them.

        With ``versions``, also of the older ones from which patches for devices are made.
        """
        with _readable(f"the state of run {run}"):
            sent = [json.loads(str(row[4])) for row in self._db.rows("checkpoints", run)]
            payloads = [payload for digests in sent for payload in digests.values()]
            refs = [
                *(BlobRef.model_validate_json(payload["ref"]) for payload in payloads),
                *(
                    ref
                    for opened in self._open_exchanges(run)
                    for task in opened.tasks
                    for ref in task.blobs.values()
                ),
            ]
        digests = {digest for ref in refs for digest in ref.blobs}
        if versions:
            digests.update(row[0] for payload in payloads for row in payload.get("held", ()))
        return digests | {str(row[4]) for row in self._db.rows("relays") if row[0] == run}

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep other processes from committing within, which must be short.

        Raises:
            StorageError: another process writes for too long.
        """
        with self._db.paused():
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one state of the rows within, unaffected by commits of other processes."""
        with self._db.snapshot():
            yield

    def copy_database(self, path: Path) -> None:
        """Write the rows to another file, as they are in the ``snapshot`` around it.

        Raises:
            StorageError: the disk does not take it.
        """
        self._db.copy(path)

    def rows_to_go_on(self, run: str, tested: Collection[int]) -> RunRows:
        """Return the rows from which a run goes on, and those of the rounds that devices test."""
        rows: RunRows = {name: self._db.rows(name, run) for name in _GO_ON}
        rows["relays"] = [row for row in self._db.rows("relays") if row[0] == run]
        rows["rounds"] = [row for row in self._db.rows("rounds", run) if row[1] in tested]
        return rows

    def go_back(self, record: RunRecord, rows: RunRows) -> None:
        """Let a run go on from the rows of an earlier moment, between two rounds."""
        run, rounds = record.run, self._db.rows("rounds", record.run)
        with self._writing(record):
            for name in (*_GO_ON, "relays"):
                self._db.delete(name, run=run)
            for _, number, _ in rounds:
                if int(str(number)) > record.round:
                    self._db.delete("rounds", run=run, round=number)
            for name, values in rows.items():
                for row in values:
                    self._db.put(name, *row)

    def hold_state(self, rows: RunRows) -> None:
        """Keep the state files that these rows name, beside those of the last commit."""
        layouts = (json.loads(str(layout)) for _, _, layout, _, _ in rows["checkpoints"])
        self._files.held = frozenset(file for layout in layouts for file in layout["digests"])

    def group(self, run: str, group: str) -> list[str]:
        """Return the names of the arrays in a group of a run's state, without reading them."""
        with _readable(f"the state of run {run}"):
            for _, _, layout, _, _ in self._db.rows("checkpoints", run):
                return list(Layout.from_json(json.loads(str(layout))).names.get(group, ()))
        return []

    def rounds(self, run: str, *, details: bool = False) -> list[dict[str, Any]]:
        """Return a run's finished rounds, oldest first.

        With ``details``, also each device's scores and measurements, and the questions of
        buffered rounds.
        """
        with _readable(f"the rounds of run {run}"):
            rows = [json.loads(str(text)) for _, _, text in self._db.rows("rounds", run)]
        if not details:
            for row in rows:
                row.pop(DEVICE_TESTS, None)
                row.pop(SETTLED, None)
                row.pop(MEASURED, None)
        return sorted(rows, key=lambda row: int(row["round"]))

    def confusions(self, run: str) -> list[dict[str, Any]]:
        """Return the counts of a run's last evaluation, of each place that was tested."""
        with _readable(f"the confusion matrix of run {run}"):
            rows = [json.loads(str(text)) for _, _, text in self._db.rows("confusions", run)]
        return sorted(rows, key=lambda row: str(row["place"]))

    def save_model(
        self, run: str, weights: Tensors, metadata: Mapping[str, str], file: str = MODEL_FILE
    ) -> Path:
        """Write a model into the run's folder and return its path."""
        path = self.run_folder(run) / file
        sync = self._durable or file == MODEL_FILE  # a simulation writes the others often
        write_arrays(path, weights, metadata, sync=sync)
        return path

    def _put_exchange(self, run: str, exchange: OpenExchange) -> None:
        plain = {
            field.name: getattr(exchange, field.name)
            for field in fields(exchange)
            if field.name not in ("tasks", "reply_roles")
        }
        plain["reply_roles"] = {
            role: wanted.to_json() for role, wanted in exchange.reply_roles.items()
        }
        self._forget_exchange(run, exchange)
        self._db.put("exchanges", run, exchange.exchange, json.dumps(plain))
        for task in exchange.tasks:
            self._db.put("tasks", run, exchange.exchange, task.device, encode(task))

    def _forget_exchange(self, run: str, exchange: OpenExchange | None) -> None:
        if exchange is not None:
            self._db.delete("exchanges", run=run, exchange=exchange.exchange)
            self._db.delete("tasks", run=run, exchange=exchange.exchange)

    def relays(self) -> list[Relay]:
        """Return the blobs between devices that were sent in any run and not yet delivered."""
        return [
            Relay(str(exchange), str(sender), str(receiver), str(digest), int(str(size)))
            for _, exchange, sender, receiver, digest, size in self._db.rows("relays")
        ]

    def _forget_relays(self, run: str, relays: Iterable[Relay]) -> None:
        for relay in relays:
            key = {"exchange": relay.exchange, "sender": relay.sender, "receiver": relay.receiver}
            self._db.delete("relays", run=run, **key)

    def _open_exchanges(self, run: str) -> tuple[OpenExchange, ...]:
        """Return the open exchanges by index, each with its tasks in the order of its cohort.

        Those of another protocol version are without tasks: no device understands them.
        """
        tasks: dict[str, list[Task]] = {}
        for _, exchange, _, task in self._db.rows("tasks", run):
            if isinstance(task, bytes) and is_understood(task):
                tasks.setdefault(str(exchange), []).append(decode(task, Task))
        exchanges = (
            _open_exchange(str(record), tuple(tasks.get(str(exchange), ())))
            for _, exchange, record in self._db.rows("exchanges", run)
        )
        return tuple(sorted(exchanges, key=lambda opened: opened.index))


def _open_exchange(text: str, tasks: tuple[Task, ...]) -> OpenExchange:
    known = json.loads(text)
    roles = {role: ReplyRole.from_json(fields) for role, fields in known.pop("reply_roles").items()}
    return OpenExchange(tasks=tasks, reply_roles=roles, **known)


def run_record(text: str) -> RunRecord:
    """Return a run's row from its JSON text."""
    known = {field.name for field in fields(RunRecord)}
    values = {key: value for key, value in json.loads(text).items() if key in known}
    # JSON knows no tuples.
    for name in ("shape", "class_names", "testers"):
        values[name] = tuple(values.get(name, ()))
    rows = values.get("silent", {}).items()
    values["silent"] = {device: (int(count), int(last)) for device, (count, last) in rows}
    values["versions"] = read_versions(values.get("versions"))
    return RunRecord(**values)


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Turn errors from intact rows of an unknown form into an EdgeFed error."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, WireError) as error:
        raise StorageError(
            f"The database holds {what} in a form that this version cannot read: {error}.",
            code="storage.damaged",
            hint="use the version of EdgeFed that wrote it, or start the run again",
        ) from error
