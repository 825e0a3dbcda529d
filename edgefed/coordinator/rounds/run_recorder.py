"""Record a run for the engine: its row, its time and bytes, and its events."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from edgefed.algorithms.selection.measurements import Measurements, measured_row
from edgefed.coordinator.exchanges.fleet import Fleet
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.rounds.disk_space import DiskSpace
from edgefed.coordinator.rounds.reply_stats import ReplyStats
from edgefed.coordinator.rounds.scores import Scores
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import OpenExchange, RunRecord
from edgefed.errors import DIVERGED, LOWER_RATE, StorageError
from edgefed.evaluation.confusion import Confusion
from edgefed.evaluation.nothing_learned import Finding, nothing_learned
from edgefed.events.base.class_names import name_of
from edgefed.events.base.model import RunStatus
from edgefed.events.base.snapshot import TEST_COUNTS
from edgefed.events.history.early_stopping import (
    DEVICE_TESTS,
    LABELS,
    MEASURED,
    REMOVED_TESTERS,
    SETTLED,
)
from edgefed.events.state.attention import NOTHING_LEARNED
from edgefed.process.clock import Clock

Result = TypeVar("Result")

DETAILS = (SETTLED, MEASURED)
"""Keys that a row has in the store only, beside the scores of each device."""


class RunRecorder:
    """Keeps one run's row up to date.

    Args:
        record: the current row.
        model: name of the model, for the journal.
        on_record: called with the row whenever it changes on disk.
        release: deletes files that can be fetched or made again, when the disk is full.
        wait: sleeps for so many seconds; True when an order ends the wait.
    """

    def __init__(
        self,
        record: RunRecord,
        *,
        model: str,
        fleet: Fleet,
        store: Store,
        journal: EventJournal,
        clock: Clock,
        on_record: Callable[[RunRecord], None],
        release: Callable[[], None],
        wait: Callable[[float], bool],
    ) -> None:
        self.record = record
        self.measurements = Measurements()
        self._model = model
        self._fleet = fleet
        self._store = store
        self._journal = journal
        self._clock = clock
        self._on_record = on_record
        self._space = DiskSpace(release, wait, self._wait_for_space)
        self._began = clock.monotonic()
        self._before = record.seconds
        self._traffic = fleet.traffic()
        self._warned_of_scores = False

    def account(self, **changes: Any) -> None:
        """Update the row's time and bytes in memory."""
        up, down = self._fleet.traffic()
        self.record = replace(
            self.record,
            bytes_up=self.record.bytes_up + up - self._traffic[0],
            bytes_down=self.record.bytes_down + down - self._traffic[1],
            seconds=self._before + self._clock.monotonic() - self._began,
            **changes,
        )
        # The fleet counts on, so only the difference since then is added next time
        self._traffic = (up, down)

    def written(self, act: Callable[[], Result]) -> Result:
        """Return the result of ``act``, which writes; while the disk is full, wait and repeat it.

        Raises:
            StorageError: it cannot be written, or an order ended the wait.
        """
        return self._space.write(act)

    def save(self, **changes: Any) -> None:
        """Write the row."""
        self.account(**changes)
        self.written(lambda: self._store.save_run(self.record))
        self._on_record(self.record)

    def status(self, status: RunStatus, reason: str = "", **changes: Any) -> None:
        """Write the row with a new status, and emit it."""
        self.save(status=status, reason=reason, **changes)
        self._tell()

    def wait_for_devices(self, min_devices: int) -> None:
        """Write the row of a run that waits, and emit how many devices it needs."""
        self.save(status="waiting", reason="")
        self._tell(min_devices=min_devices)

    def end(self, status: RunStatus, reason: str, **changes: Any) -> None:
        """Write the last row, and emit the end even if the disk does not take the row.

        The row on disk then still says that the run is at work, so a restart of the coordinator
        resumes it; until then clients are shown the end.
        """
        finished = self.record.finished_rounds
        try:
            self.save(status=status, reason=reason, round=finished, **changes)
        except StorageError as error:
            # A full disk must not hide the end from clients
            self.warn(f"the end of the run was not written: {error.message}")
            self._store.show_unwritten(self.record)
            self._on_record(self.record)
        # The rows of the rounds lack what crossed between them
        self._tell(sent=self.record.bytes_down, received=self.record.bytes_up)

    def _tell(self, **more: Any) -> None:
        record = self.record
        self._journal.emit(
            "run",
            run=record.run,
            name=record.name,
            algorithm=record.algorithm,
            model=self._model,
            rounds=record.rounds,
            round=record.round,
            status=record.status,
            reason=record.reason,
            accuracy=record.accuracy,
            loss=record.loss,
            **{name: getattr(record, name) for name in TEST_COUNTS},
            weights_digest=record.weights_digest,
            class_names=list(record.class_names),
            **({"restored": record.restored} if record.restored else {}),
            **more,
        )

    def _wait_for_space(self, why: str) -> None:
        """Show that the run waits because the disk takes nothing, or that it goes on."""
        reason = f"{why} Waiting for the disk." if why else ""
        record = replace(self.record, reason=reason)
        # Shown and not written, since the disk takes nothing
        self._store.show_unwritten(record)
        self._journal.emit("run", run=record.run, status=record.status, reason=reason)
        if not why:
            self.note("the disk takes writes again; going on")

    def warn(self, text: str) -> None:
        """Emit a warning to the journal."""
        self.note(text, warning=True)

    def note(self, text: str, *, warning: bool = False) -> None:
        """Emit a message for the operator to the journal."""
        self._journal.emit("note", level="warning" if warning else "info", text=text)

    def begin_round(self, number: int) -> None:
        """Open a round, unless it is open, possibly since before a restart."""
        progress = self.record.progress
        if progress.get("round") == number == self.record.round:
            return
        self.account()
        now = self.record
        if progress.get("round") != number:  # else the run ended in this round and was resumed
            began = {"seconds": now.seconds, "up": now.bytes_up, "down": now.bytes_down}
            progress = {"round": number, **began}
        self.save(round=number, progress=progress)
        self._journal.emit("round", run=now.run, round=number)

    def with_answers(
        self,
        stats: ReplyStats,
        epsilon: float | None,
        asked: Collection[str] = (),
        untimed: Collection[str] = (),
    ) -> RunRecord:
        """Return the row with an exchange's answers in it, to be written together with them.

        Args:
            stats: of the exchange.
            epsilon: the total privacy cost of all merged rounds.
            asked: devices whose measurements are kept.
            untimed: those of them that were asked before a restart, so that seconds are unknown.
        """
        self.account()
        so_far = self._tally()
        so_far.add(stats)
        progress = {**self.record.progress, "stats": so_far.to_json()}
        if asked:
            if not self._fleet.takes_time:  # then seconds are those of this machine
                untimed = asked
            answers = {
                name: replace(one, seconds=None) if name in untimed else one
                for name, one in stats.answers.items()
            }
            progress[MEASURED] = progress.get(MEASURED, {}) | measured_row(asked, answers)
        return replace(self.record, progress=progress, epsilon=epsilon)

    def without_answers(self) -> RunRecord:
        """Return the row without the answers of its round, which begins anew."""
        self.account()
        # The beginning of the round stays, so that seconds and bytes are those of all its attempts
        progress = {name: value for name, value in self.record.progress.items() if name != "stats"}
        return replace(self.record, progress=progress)

    def close_round(
        self,
        number: int,
        scores: Scores,
        tested_by: OpenExchange | None,
        measured: Mapping[str, float],
    ) -> dict[str, Any]:
        """Write a round's row: its answers, metrics and measurements, and its scores if tested.

        If an exchange tested the round, close it. Return the row. The scores of each device are
        stored with it.
        """
        self.account()
        # Told once, since every later round would say the same
        if not scores.finite and not self._warned_of_scores:
            self._warned_of_scores = True
            self.warn(f"{DIVERGED}: the model's loss is not finite; {LOWER_RATE}")
        now, began, stats = self.record, self.record.progress, self._tally()
        row: dict[str, Any] = {
            "round": number,
            "accuracy": None,
            "loss": None,
            "train_loss": stats.loss,
            "replies": stats.accepted,
            "late": stats.declined,
            "slowest": stats.slowest,
            "slowest_seconds": stats.slowest_seconds,
            # Without a known beginning, the differences are zero
            "seconds": round(now.seconds - began.get("seconds", now.seconds), 3),
            "sent": now.bytes_down - began.get("down", now.bytes_down),
            "received": now.bytes_up - began.get("up", now.bytes_up),
            **({} if stats.joules is None else {"joules": stats.joules}),
            **({"summed": stats.summed} if stats.summed else {}),
            **({REMOVED_TESTERS: gone} if (gone := began.get(REMOVED_TESTERS)) else {}),
            **(dict(zip(LABELS, scores.labels, strict=True)) if any(scores.labels) else {}),
            **{name: _if_finite(value) for name, value in {**measured, **scores.values}.items()},
        }
        details = {name: value for name in DETAILS if (value := began.get(name))}
        self.measurements.add({**row, **details})
        # With an empty progress, the next begin_round opens a round
        self._save_row(replace(now, round=number, progress={}), row, details, scores, tested_by)
        return row

    def score_later(
        self,
        scores: Scores,
        tested_by: OpenExchange,
        measured: Mapping[str, float],
    ) -> dict[str, Any]:
        """Add the scores of devices to the row of an earlier round, close its test, and return it.

        In buffered rounds, later rounds have ended meanwhile.
        """
        self.account()
        # The stored row: the recorder's own is of a later round by now
        rows = self._store.rounds(self.record.run, details=True)
        row = next(row for row in rows if row["round"] == tested_by.round)
        details = {name: row.pop(name) for name in DETAILS if name in row}
        labels = dict(zip(LABELS, scores.labels, strict=True)) if any(scores.labels) else {}
        values = {
            name: _if_finite(value)
            for name, value in {**measured, **scores.values}.items()
            if row.get(name) is None or f"device_{name}" not in scores.values
        }  # the coordinator's scores stay those without device_
        row |= labels | values
        self._save_row(self.record, row, details, scores, tested_by)
        return row

    def _save_row(
        self,
        record: RunRecord,
        row: dict[str, Any],
        details: Mapping[str, Any],
        scores: Scores,
        tested_by: OpenExchange | None,
    ) -> None:
        """Write a round's row with its details, close the exchange that tested it, and emit it."""
        shown = ("accuracy", "loss", *TEST_COUNTS)
        # Without scores, the run's row keeps those of the last test
        tested = {name: row.get(name, 0) for name in shown} if scores else {}
        closed = replace(record, **tested)
        confusions = [view.model_dump(mode="json") for view in scores.confusions]
        kept = {**row, **details}
        if scores.device_tests:
            kept[DEVICE_TESTS] = scores.device_tests
        # The row, the counts and the end of the test change in one step
        self.written(lambda: self._store.save_round(closed, kept, confusions, closes=tested_by))
        self.record = closed
        for confusion in confusions:
            self._journal.emit("confusion", run=record.run, **confusion)
        self._journal.emit("scored", run=record.run, **row)

    def nothing_learned(self, names: Collection[str]) -> Finding | None:
        """Return and warn of a sign that the model learned nothing; None if there is none.

        Args:
            names: of the model's trained weights and running statistics.
        """
        now = self.record
        tests, rows = self._store.confusions(now.run), self._store.rounds(now.run)
        # Without counts there is no telling whether the model always predicts one class
        if not tests:
            return None
        finding = nothing_learned(
            Confusion.from_rows(tests[0]["counts"]),
            [row["train_loss"] for row in rows if row.get("train_loss") is not None],
            rounds=len(rows),
            has_statistics=any(name.endswith("running_mean") for name in names),
            called=lambda label: name_of(label, now.class_names),
        )
        if finding is None:
            return None
        finding = replace(finding, text=f"{NOTHING_LEARNED}: {finding.text}")
        self.warn(f"{finding.text}; try: {finding.hint}")
        return finding

    def _tally(self) -> ReplyStats:
        return ReplyStats.from_json(self.record.progress.get("stats", {}))


def _if_finite(value: float) -> float | None:
    """Return a score, or None when the model has diverged so far that it has none."""
    return value if math.isfinite(value) else None
